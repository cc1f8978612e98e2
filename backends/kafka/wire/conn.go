package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// maxFrame bounds an answer. Brokers take records of a megabyte unless told otherwise, and a fetch asks for a few of them;
// what is larger is not an answer of Kafka's, but four letters of another protocol read as a length.
const maxFrame = 256 << 20

// conn is one connection to one broker, ready for requests. It carries one exchange at a time.
type conn struct {
	net.Conn
	client  *Client
	address string
	id      int32     // of the last request
	expires time.Time // when the broker wants a new login, and hangs up otherwise; zero: never

	answered bool // something: the broker is there
	greeted  bool // the broker has told its versions, and they fit
	lent     bool // an Ahead keeps it
	broken   bool // an exchange did not end as it should, so that the next answer may belong to an earlier request
}

// dial connects, and logs in where that has to be. ctx bounds all of it.
func (c *Client) dial(ctx context.Context, address string) (*conn, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, failed(PhaseDial, address, err)
	}
	if c.config.TLS != nil {
		if raw, err = c.secure(ctx, raw, address); err != nil {
			return nil, err
		}
	}
	cn := &conn{Conn: raw, client: c, address: address}
	if c.config.login() {
		if err := cn.greet(ctx); err != nil {
			cn.Close()
			return nil, err
		}
	}
	return cn, nil
}

// secure puts TLS on a connection. Where no name is asked for, the broker's certificate has to fit the host dialled.
func (c *Client) secure(ctx context.Context, raw net.Conn, address string) (net.Conn, error) {
	config := c.config.TLS
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	secured := tls.Client(raw, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, failed(PhaseTLS, address, err)
	}
	return secured, nil
}

// greet learns what the broker speaks, and logs in.
func (cn *conn) greet(ctx context.Context) error {
	if _, err := cn.send(ctx, step{phase: PhaseVersions, request: &apiVersionsRequest{}}); err != nil {
		return err
	}
	if !cn.client.config.login() {
		return nil
	}
	return cn.login(ctx)
}

// login tells whether brokers have to be told who we are.
func (c *Config) login() bool { return c.User != "" || c.Mechanism != "" }

// welcome takes a broker's answer about its versions.
func (cn *conn) welcome(versions *apiVersionsResponse) error {
	if versions.ErrorCode != 0 {
		return versions.ErrorCode
	}
	err := checkVersions(versions.APIs)
	cn.greeted = err == nil
	return err
}

// checkVersions compares what the broker speaks with what we do. SASL is left out: a listener without it does not list it.
func checkVersions(apis []apiVersion) error {
	offered := make(map[protocol.ApiKey]apiVersion, len(apis))
	for _, a := range apis {
		offered[protocol.ApiKey(a.Key)] = a
	}
	for _, key := range []protocol.ApiKey{protocol.Produce, protocol.Fetch, protocol.ListOffsets, protocol.Metadata} {
		v, a := spoken[key], offered[key]
		if a.Min > v || a.Max < v {
			return fmt.Errorf("%w: %v version %d is needed, %d to %d are offered", ErrOld, key, v, a.Min, a.Max)
		}
	}
	return nil
}

// exchange sends a request and waits for its answer, within ctx. The error of one that may have reached the broker has
// Sent set.
func (cn *conn) exchange(ctx context.Context, p Phase, request protocol.Message) (protocol.Message, error) {
	answers, err := cn.exchangeAll(ctx, step{phase: p, request: request})
	if err != nil {
		return nil, err
	}
	return answers[0], nil
}

// exchangeAll does so with several requests, which go out in one piece and are answered in their order.
//
// What a broker speaks is only asked where something has gone wrong: one that does not speak as we do hangs up. A request
// that changes something waits until the broker has shown that it is there.
func (cn *conn) exchangeAll(ctx context.Context, steps ...step) ([]protocol.Message, error) {
	if !cn.answered && steps[0].phase.changes() {
		if err := cn.greet(ctx); err != nil {
			return nil, err
		}
	}
	answers, err := cn.send(ctx, steps...)
	var e *Error
	switch {
	case err == nil || cn.greeted:
	case lostConnection(err):
		err = cn.misunderstood(ctx, err)
	case !cn.answered && errors.As(err, &e):
		e.Phase = PhaseVersions // whatever is asked first is the greeting
	}
	return answers, err
}

// misunderstood greets a broker that has hung up, by another connection. If that fails as well, it says what is wrong,
// better than err does.
func (cn *conn) misunderstood(ctx context.Context, err error) error {
	again, dialErr := cn.client.dial(ctx, cn.address)
	if dialErr != nil {
		return err
	}
	defer again.Close()
	var e *Error
	if greetErr := again.greet(ctx); errors.As(greetErr, &e) && ctx.Err() == nil {
		e.Sent = MaybeDone(err)
		return e
	}
	return err
}

// step is a request, and what it is for.
type step struct {
	phase   Phase
	request protocol.Message
	ahead   bool // its answer is for later
}

// send sends requests in one piece and returns their answers. Those to steps that are ahead are not waited for, and have
// to be collected.
func (cn *conn) send(ctx context.Context, steps ...step) ([]protocol.Message, error) {
	return cn.sendBehind(ctx, nil, steps...)
}

// sendBehind does so while the answers to some that were sent before, the last of all, have not been waited for. It returns
// them as well.
func (cn *conn) sendBehind(ctx context.Context, before []step, steps ...step) ([]protocol.Message, error) {
	first := cn.id + 1 - int32(len(before))
	all := append(slices.Clone(before), steps...)
	for i := range before {
		all[i].ahead = false
	}
	return cn.bounded(ctx, all, func() (answers []protocol.Message, at int, sent bool, err error) {
		if sent, err = cn.write(steps); err != nil {
			return nil, 0, sent, err
		}
		return cn.answers(first, all)
	})
}

// bounded lets do talk to the broker within ctx. do tells with its error at which step it happened, and whether anything
// of it may have been sent.
func (cn *conn) bounded(ctx context.Context, steps []step, do func() ([]protocol.Message, int, bool, error)) ([]protocol.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed(steps[0].phase, cn.address, err)
	}
	deadline, _ := ctx.Deadline() // none: the zero time, which is none for a connection as well
	cn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { cn.SetDeadline(time.Unix(1, 0)) })
	answers, at, sent, err := do()
	if !stop() || err != nil {
		cn.broken = true
	}
	if err == nil {
		return answers, nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	p := steps[at].phase
	return nil, &Error{Phase: p, Broker: cn.address, Err: err, Sent: sent && p.changes()}
}

// write sends requests in one piece, and tells whether anything of it may have been sent.
func (cn *conn) write(steps []step) (sent bool, err error) {
	if len(steps) == 0 {
		return false, nil
	}
	var frames bytes.Buffer
	for _, s := range steps {
		cn.id++
		if err := protocol.WriteRequest(&frames, spoken[s.request.ApiKey()], cn.id, cn.client.config.ClientID, s.request); err != nil {
			return false, err
		}
	}
	n, err := cn.Write(frames.Bytes())
	return n > 0, err
}

// answers reads those to requests that were sent, the first of which has that number.
func (cn *conn) answers(first int32, steps []step) (all []protocol.Message, at int, sent bool, err error) {
	for at, s := range steps {
		if s.ahead {
			break
		}
		answer, err := cn.receive(first+int32(at), s.request.ApiKey())
		if err != nil {
			return nil, at, true, err
		}
		cn.answered = true
		all = append(all, answer)
	}
	return all, 0, true, nil
}

// receive reads the answer to the request of that number.
func (cn *conn) receive(id int32, key protocol.ApiKey) (protocol.Message, error) {
	body, err := cn.readFrame(id)
	if err != nil {
		return nil, err
	}
	answer, err := decode(body, key, spoken[key])
	if err != nil {
		return nil, err
	}
	if versions, ok := answer.(*apiVersionsResponse); ok {
		err = cn.welcome(versions)
	}
	return answer, err
}

// readFrame reads one answer, with its length in front, and makes sure that it is the one waited for.
func (cn *conn) readFrame(want int32) ([]byte, error) {
	var head [8]byte
	if n, err := io.ReadFull(cn, head[:]); err != nil {
		if n > 0 && looksForeign(head[:n]) {
			return nil, fmt.Errorf("%w: it begins with %q", ErrNotKafka, head[:n])
		}
		return nil, err
	}
	size, id := binary.BigEndian.Uint32(head[:4]), int32(binary.BigEndian.Uint32(head[4:]))
	if size < 4 || size > maxFrame || id != want {
		return nil, fmt.Errorf("%w: it begins with %q", ErrNotKafka, head[:])
	}
	frame := bytes.NewBuffer(make([]byte, 0, min(int(size)+4, 64<<10)))
	frame.Write(head[:])
	if n, err := io.CopyN(frame, cn, int64(size)-4); err != nil {
		if errors.Is(err, io.EOF) && n < int64(size)-4 {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return frame.Bytes(), nil
}

// looksForeign tells whether a short answer is that of another protocol: a TLS alert, or text.
func looksForeign(b []byte) bool {
	return b[0] == 0x15 || b[0] >= ' ' && b[0] <= '~'
}

// decode makes a message of an answer. The codec trusts the counts that it reads and panics on an impossible one.
func decode(frame []byte, key protocol.ApiKey, version int16) (answer protocol.Message, err error) {
	defer func() {
		if r := recover(); r != nil {
			answer, err = nil, fmt.Errorf("%w: %v", ErrNotKafka, r)
		}
	}()
	_, answer, err = protocol.ReadResponse(bytes.NewReader(frame), key, version)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrNotKafka, err)
	}
	return answer, err
}
