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
	greeted bool      // the broker has told its versions, and they fit
	expires time.Time // when the broker wants a new login, and hangs up otherwise; zero: never
	broken  bool      // an exchange did not end as it should, so that the next answer may belong to an earlier request
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
	if _, err := cn.send(ctx, step{PhaseVersions, &apiVersionsRequest{}}); err != nil {
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
//
// The first request that only asks goes out together with the greeting, which saves a round trip. One that changes
// something waits until the broker has shown that it is there.
func (cn *conn) exchange(ctx context.Context, p Phase, request protocol.Message) (protocol.Message, error) {
	if cn.greeted {
		return cn.send(ctx, step{p, request})
	}
	if p.changes() {
		if err := cn.greet(ctx); err != nil {
			return nil, err
		}
		return cn.send(ctx, step{p, request})
	}
	return cn.send(ctx, step{PhaseVersions, &apiVersionsRequest{}}, step{p, request})
}

// step is a request, and what it is for.
type step struct {
	phase   Phase
	request protocol.Message
}

// send sends requests in one piece and returns the last one's answer.
func (cn *conn) send(ctx context.Context, steps ...step) (protocol.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed(steps[0].phase, cn.address, err)
	}
	deadline, _ := ctx.Deadline() // none: the zero time, which is none for a connection as well
	cn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { cn.SetDeadline(time.Unix(1, 0)) })
	answer, at, sent, err := cn.roundTrip(steps)
	if !stop() || err != nil {
		cn.broken = true
	}
	if err == nil {
		return answer, nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	p := steps[at].phase
	return nil, &Error{Phase: p, Broker: cn.address, Err: err, Sent: sent && p.changes()}
}

// roundTrip tells with its error at which step it happened, and whether anything of it may have been sent.
func (cn *conn) roundTrip(steps []step) (answer protocol.Message, at int, sent bool, err error) {
	first := cn.id + 1
	var frames bytes.Buffer
	for at, s := range steps {
		cn.id++
		if err := protocol.WriteRequest(&frames, spoken[s.request.ApiKey()], cn.id, cn.client.config.ClientID, s.request); err != nil {
			return nil, at, false, err
		}
	}
	if n, err := cn.Write(frames.Bytes()); err != nil {
		return nil, 0, n > 0, err
	}
	for at, s := range steps {
		if answer, err = cn.receive(first+int32(at), s.request.ApiKey()); err != nil {
			return nil, at, true, err
		}
	}
	return answer, 0, true, nil
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
