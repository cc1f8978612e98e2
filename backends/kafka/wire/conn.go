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
	id      int32 // of the last request
	broken  bool  // an exchange did not end as it should, so that the next answer may belong to an earlier request
}

// dial connects, and brings the connection as far as it can be asked for something. ctx bounds all of it.
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
	if err := cn.greet(ctx); err != nil {
		cn.Close()
		return nil, err
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
	answer, err := cn.exchange(ctx, PhaseVersions, &apiVersionsRequest{})
	if err != nil {
		return err
	}
	versions := answer.(*apiVersionsResponse)
	if versions.ErrorCode != 0 {
		return refused(PhaseVersions, cn.address, versions.ErrorCode, "")
	}
	if err := checkVersions(versions.APIs); err != nil {
		return failed(PhaseVersions, cn.address, err)
	}
	if cn.client.config.User == "" && cn.client.config.Mechanism == "" {
		return nil
	}
	return cn.login(ctx)
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
	if err := ctx.Err(); err != nil {
		return nil, failed(p, cn.address, err)
	}
	deadline, _ := ctx.Deadline() // none: the zero time, which is none for a connection as well
	cn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { cn.SetDeadline(time.Unix(1, 0)) })
	answer, sent, err := cn.roundTrip(request)
	if !stop() || err != nil {
		cn.broken = true
	}
	if err == nil {
		return answer, nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return nil, &Error{Phase: p, Broker: cn.address, Err: err, Sent: sent && p.changes()}
}

// roundTrip tells with its error whether anything of the request may have been sent.
func (cn *conn) roundTrip(request protocol.Message) (answer protocol.Message, sent bool, err error) {
	key := request.ApiKey()
	version := spoken[key]
	cn.id++
	var frame bytes.Buffer
	if err := protocol.WriteRequest(&frame, version, cn.id, cn.client.config.ClientID, request); err != nil {
		return nil, false, err
	}
	if n, err := cn.Write(frame.Bytes()); err != nil {
		return nil, n > 0, err
	}
	body, err := cn.readFrame()
	if err != nil {
		return nil, true, err
	}
	answer, err = decode(body, key, version)
	return answer, true, err
}

// readFrame reads one answer, with its length in front, and makes sure that it is the one waited for.
func (cn *conn) readFrame() ([]byte, error) {
	var head [8]byte
	if n, err := io.ReadFull(cn, head[:]); err != nil {
		if n > 0 && looksForeign(head[:n]) {
			return nil, fmt.Errorf("%w: it begins with %q", ErrNotKafka, head[:n])
		}
		return nil, err
	}
	size, id := binary.BigEndian.Uint32(head[:4]), int32(binary.BigEndian.Uint32(head[4:]))
	if size < 4 || size > maxFrame || id != cn.id {
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
