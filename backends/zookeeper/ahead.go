package zookeeper

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// What lockrun asks by itself, behind the request for a session and in one packet with it: the login, and how the key stands
// that the session is for. A server looks at what comes behind that request once the session is there, and answers in order;
// so all of it costs one round trip together, where the client would take one for each.
//
// The answers pass through the client, which does not know their numbers and drops them.
const (
	askData     = 4
	askChildren = 12
	askLogin    = 100

	loginNumber = -4
	firstNumber = 1<<31 - 16 // which the client, counting from 1, does not reach
	noNode      = -101
)

// question is one request of this kind.
type question struct {
	number   int32
	kind     int32
	body     []byte
	answered chan reply[node] // closed where there will be no answer
}

func newQuestion(number, kind int32, body []byte) *question {
	return &question{number: number, kind: kind, body: body, answered: make(chan reply[node], 1)}
}

// about asks for a node's data or its children, without a watch.
func about(number, kind int32, path string) *question {
	return newQuestion(number, kind, append(appendText(nil, path), 0))
}

// login sends credentials for digest authentication.
func login(user, password string) *question {
	body := appendText(make([]byte, 4), "digest")
	return newQuestion(loginNumber, askLogin, appendText(body, user+":"+password))
}

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

// appendTo adds the request as it is sent.
func (q *question) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(8+len(q.body)))
	b = binary.BigEndian.AppendUint32(b, uint32(q.number))
	b = binary.BigEndian.AppendUint32(b, uint32(q.kind))
	return append(b, q.body...)
}

// errRefused is an answer that only the client's own question can tell more about.
var errRefused = errors.New("the server refused it")

// take reads the answer: its number, a transaction, an error, and what was asked for.
func (q *question) take(answer []byte) {
	r := reply[node]{}
	switch code := int32(binary.BigEndian.Uint32(answer[12:])); {
	case code == noNode:
	case code != 0 && q.kind == askLogin:
		r.err = zk.ErrAuthFailed
	case code != 0:
		r.err = errRefused
	case q.kind != askLogin:
		r.v, r.err = readNode(q.kind, answer[16:])
	}
	q.answered <- r
	close(q.answered)
}

// errShort is an answer that ends too early.
var errShort = errors.New("the answer is too short")

// readNode reads what a node's data or children, and its properties, were sent as.
func readNode(kind int32, b []byte) (n node, err error) {
	number := func() int {
		if len(b) < 4 {
			err = errShort
			return 0
		}
		v := int32(binary.BigEndian.Uint32(b))
		b = b[4:]
		return int(v)
	}
	text := func() []byte {
		size := max(0, number()) // -1 is nothing
		if size > len(b) {
			err = errShort
			return nil
		}
		v := b[:size:size]
		b = b[size:]
		return v
	}
	if kind == askData {
		n.data = append(n.data, text()...)
	} else {
		for count := number(); count > 0 && err == nil; count-- {
			n.children = append(n.children, string(text()))
		}
	}
	if err == nil {
		_, err = binary.Decode(b, binary.BigEndian, &n.stat)
	}
	n.found = err == nil
	return n, err
}

// ahead is the questions of one connection.
type ahead struct {
	mu   sync.Mutex
	open []*question
	seen []byte // of what the server has sent, while there are open questions
}

// request is what to send behind the first packet.
func (a *ahead) request() (b []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.open {
		b = q.appendTo(b)
	}
	return b
}

// look is given what was read, and finds the answers. What it is given has passed lengths.
func (a *ahead) look(b []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.open) == 0 {
		return
	}
	a.seen = append(a.seen, b...)
	for len(a.seen) >= 4 {
		end := 4 + int(binary.BigEndian.Uint32(a.seen))
		if len(a.seen) < end {
			return
		}
		a.match(a.seen[4:end])
		a.seen = a.seen[end:]
	}
	if len(a.open) == 0 {
		a.seen = nil
	}
}

// match gives an answer to its question. The answer to the request for a session has a zero where others have their number.
func (a *ahead) match(answer []byte) {
	if len(answer) < 16 {
		return
	}
	number := int32(binary.BigEndian.Uint32(answer))
	for i, q := range a.open {
		if q.number == number {
			q.take(answer)
			a.open = slices.Delete(a.open, i, i+1)
			return
		}
	}
}

// over says that the connection has ended, and with it all hope of an answer.
func (a *ahead) over() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.open {
		close(q.answered)
	}
	a.open, a.seen = nil, nil
}

// wait returns the answer. An error says no more than that there is none.
func (q *question) wait(ctx context.Context, bound <-chan time.Time) (node, error) {
	select {
	case r, ok := <-q.answered:
		if !ok {
			return node{}, zk.ErrConnectionClosed
		}
		return r.v, r.err
	case <-ctx.Done():
		return node{}, ctx.Err()
	case <-bound:
		return node{}, errNoAnswer
	}
}
