package testserver

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A client of our own, in the thirty lines that Redis' protocol takes, so that what a test sees in the store does not
// depend on the library whose use is being tested.

// respBound bounds one exchange; a frozen server must not hang the harness.
const respBound = 5 * time.Second

type respConn struct {
	net.Conn
	r *bufio.Reader
}

// RedisError is an error that the server answered, like "NOAUTH Authentication required.".
type RedisError string

func (e RedisError) Error() string { return string(e) }

func dialRESP(address string, config *tls.Config) (*respConn, error) {
	d := &net.Dialer{Timeout: respBound}
	var c net.Conn
	var err error
	if config != nil {
		c, err = tls.DialWithDialer(d, "tcp", address, config)
	} else {
		c, err = d.Dial("tcp", address)
	}
	if err != nil {
		return nil, err
	}
	return &respConn{c, bufio.NewReader(c)}, nil
}

// do sends one command and reads its reply: string, int64, nil, []any, or an error of type RedisError.
func (c *respConn) do(args ...string) (any, error) {
	if err := c.SetDeadline(time.Now().Add(respBound)); err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		return nil, err
	}
	return c.reply()
}

func (c *respConn) reply() (any, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, RedisError(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf("not the protocol of Redis: %q", line)
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		b := make([]byte, n+2)
		_, err := io.ReadFull(c.r, b)
		return string(b[:n]), err
	case kind == '*':
		return c.array(n)
	}
	return nil, fmt.Errorf("not the protocol of Redis: %q", line)
}

// array reads n replies; an error among them stands in its place.
func (c *respConn) array(n int64) (any, error) {
	all := make([]any, n)
	for i := range all {
		v, err := c.reply()
		var refused RedisError
		switch {
		case errors.As(err, &refused):
			v = refused
		case err != nil:
			return nil, err
		}
		all[i] = v
	}
	return all, nil
}

// pairs reads a flat list of names and values, as SENTINEL and CONFIG GET answer.
func pairs(reply any) map[string]string {
	list, _ := reply.([]any)
	m := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return m
}

// fields reads "name:value" lines, as INFO answers.
func fields(text string) map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			m[name] = value
		}
	}
	return m
}
