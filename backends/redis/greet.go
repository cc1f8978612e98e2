package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// login is what a new connection says of itself.
type login struct {
	user, password string
	client         string // "" says nothing
	db             int
}

// greet says it in one exchange. go-redis would take up to three (HELLO, then SELECT and CLIENT SETNAME, then CLIENT
// SETINFO), and needs rights for HELLO that a narrow ACL user may not have. What is asked for here works on any server
// since 6.0; that the server does not like our name is no reason not to work with it.
func (l login) greet(ctx context.Context, conn net.Conn) error {
	steps := l.steps()
	if len(steps) == 0 {
		return nil
	}
	if t, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(t)
		defer func() { _ = conn.SetDeadline(time.Time{}) }()
	}
	var out []byte
	for _, s := range steps {
		out = appendCommand(out, s)
	}
	if _, err := conn.Write(out); err != nil {
		return err
	}
	in := bufio.NewReaderSize(conn, 2<<10)
	var refused error
	for _, s := range steps {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return errNotRedis
		}
		if err != nil {
			return err
		}
		if err := l.answer(s[0], strings.TrimRight(string(line), "\r\n")); err != nil && refused == nil {
			refused = err // the other answers still have to be read
		}
	}
	return refused
}

func (l login) steps() (all [][]string) {
	switch {
	case l.user != "":
		all = append(all, []string{"AUTH", l.user, l.password})
	case l.password != "":
		all = append(all, []string{"AUTH", l.password})
	}
	if l.db != 0 {
		all = append(all, []string{"SELECT", strconv.Itoa(l.db)})
	}
	if l.client != "" {
		all = append(all, []string{"CLIENT", "SETNAME", l.client})
	}
	return all
}

// serverError is an error reply, without its dash.
type serverError string

func (e serverError) Error() string { return string(e) }

func (l login) answer(command, line string) error {
	switch {
	case strings.HasPrefix(line, "+"):
		return nil
	case !strings.HasPrefix(line, "-"):
		return errNotRedis
	case command != "CLIENT", !strings.HasPrefix(line, "-NOPERM") && !strings.HasPrefix(line, "-ERR unknown"):
		return serverError(line[1:])
	}
	return nil
}

var errNotRedis = errors.New("what answers there does not speak the protocol of Redis")

func appendCommand(out []byte, words []string) []byte {
	out = fmt.Appendf(out, "*%d\r\n", len(words))
	for _, w := range words {
		out = fmt.Appendf(out, "$%d\r\n%s\r\n", len(w), w)
	}
	return out
}

// greeted is a connection that has been greeted already. go-redis begins each connection with HELLO and cannot be told
// not to; the answer comes from here, so that it costs no exchange. Its error is one that go-redis takes for a server
// too old to know HELLO, after which it speaks RESP2 as it was told to.
type greeted struct {
	net.Conn
	answer []byte // what is still to be read of our own answer
	begun  bool
	frames frames
}

const helloAnswer = "-ERR already greeted\r\n"

func (g *greeted) Write(p []byte) (int, error) {
	if g.begun {
		return g.Conn.Write(p)
	}
	g.begun = true
	if string(p) == "*2\r\n$5\r\nhello\r\n$1\r\n2\r\n" {
		g.answer = []byte(helloAnswer)
		return len(p), nil
	}
	return g.Conn.Write(p)
}

func (g *greeted) Read(p []byte) (int, error) {
	if len(g.answer) == 0 {
		n, err := g.Conn.Read(p)
		if bad := g.frames.look(p[:n]); bad != nil {
			return 0, bad
		}
		return n, err
	}
	n := copy(p, g.answer)
	g.answer = g.answer[n:]
	return n, nil
}
