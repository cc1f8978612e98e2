package testserver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The harness speaks a little of Kafka's protocol itself, in versions old enough to be plain and young enough for Kafka 4:
// the driver's own client is what is tested, and Kafka's programs take a JVM a second each.
const (
	askMetadata        = 3
	askCreateTopics    = 19
	askDeleteRecords   = 21
	askCreateACLs      = 30
	askCreatePartition = 37
	askElectLeaders    = 43
	askAlterConfigs    = 44
	askReassign        = 45
)

// message is a request being written or an answer being read.
type message struct {
	b   []byte
	bad bool
}

func (m *message) i8(v int8)   { m.b = append(m.b, byte(v)) }
func (m *message) i16(v int16) { m.b = binary.BigEndian.AppendUint16(m.b, uint16(v)) }
func (m *message) i32(v int)   { m.b = binary.BigEndian.AppendUint32(m.b, uint32(v)) }
func (m *message) i64(v int64) { m.b = binary.BigEndian.AppendUint64(m.b, uint64(v)) }
func (m *message) str(s string) {
	m.i16(int16(len(s)))
	m.b = append(m.b, s...)
}

func (m *message) take(n int) []byte {
	if n < 0 || n > len(m.b) {
		m.bad, m.b = true, nil
		return make([]byte, max(n, 8))
	}
	b := m.b[:n]
	m.b = m.b[n:]
	return b
}

func (m *message) int8() int8   { return int8(m.take(1)[0]) }
func (m *message) int16() int16 { return int16(binary.BigEndian.Uint16(m.take(2))) }
func (m *message) int32() int   { return int(int32(binary.BigEndian.Uint32(m.take(4)))) }

func (m *message) string() string {
	n := m.int16()
	if n < 0 {
		return ""
	}
	return string(m.take(int(n)))
}

// ints reads an array of numbers.
func (m *message) ints() []int {
	var all []int
	for range m.int32() {
		if m.bad {
			break
		}
		all = append(all, m.int32())
	}
	return all
}

// ask sends one request to the broker's inner address and reads the answer, both without their headers.
func (b *Kafka) ask(key, version int16, body []byte, bound time.Duration) (*message, error) {
	flexible := key == askReassign
	c, err := net.DialTimeout("tcp", b.Inner(), respBound)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(bound))
	request := &message{}
	request.i32(0) // the length, later
	request.i16(key)
	request.i16(version)
	request.i32(1) // the number of the request
	request.str("testserver")
	if flexible {
		request.i8(0)
	}
	request.b = append(request.b, body...)
	binary.BigEndian.PutUint32(request.b, uint32(len(request.b)-4))
	if _, err := c.Write(request.b); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint32(size[:])&0xffffff)
	if _, err := io.ReadFull(c, answer); err != nil {
		return nil, err
	}
	m := &message{b: answer}
	m.take(4)
	if flexible {
		m.take(1)
	}
	return m, nil
}

// kafkaView is what a broker knows of its cluster and of one topic.
type kafkaView struct {
	cluster    string
	controller int
	brokers    []int
	partitions map[int]kafkaPartition // of the topic; nil where it is missing
}

type kafkaPartition struct {
	leader        int
	replicas, isr []int
}

// view asks a broker, and never lets it create the topic.
func (b *Kafka) view(topic string) (*kafkaView, error) { return b.metadata(topic, 0) }

func (b *Kafka) metadata(topic string, create int8) (*kafkaView, error) {
	q := &message{}
	if topic == "" {
		q.i32(0)
	} else {
		q.i32(1)
		q.str(topic)
	}
	q.i8(create)
	m, err := b.ask(askMetadata, 4, q.b, respBound)
	if err != nil {
		return nil, err
	}
	v := &kafkaView{}
	m.int32() // throttled
	for range m.int32() {
		v.brokers = append(v.brokers, m.int32())
		m.string()
		m.int32()
		m.string()
	}
	v.cluster = m.string()
	v.controller = m.int32()
	for range m.int32() {
		code := m.int16()
		m.string()
		m.int8()
		v.partitions = m.partitions()
		if code != 0 {
			v.partitions = nil
		}
	}
	if m.bad {
		return nil, errors.New("the broker's answer is cut off")
	}
	return v, nil
}

func (m *message) partitions() map[int]kafkaPartition {
	all := make(map[int]kafkaPartition)
	for range m.int32() {
		if m.bad {
			break
		}
		m.int16()
		id := m.int32()
		all[id] = kafkaPartition{leader: m.int32(), replicas: m.ints(), isr: m.ints()}
	}
	return all
}

// sees returns nil when the broker is part of its cluster and knows at least n brokers.
func (b *Kafka) sees(n int) error {
	v, err := b.view("")
	if err != nil {
		return err
	}
	own := false
	for _, id := range v.brokers {
		own = own || id == b.id
	}
	switch {
	case v.cluster != b.cluster.id:
		return fmt.Errorf("another cluster answers: %s", v.cluster)
	case !own || len(v.brokers) < n:
		return fmt.Errorf("it knows the brokers %v", v.brokers)
	case v.controller < 0:
		return errors.New("there is no controller")
	}
	return nil
}

// code asks, and makes an error of the code that one of the readers below finds.
func (b *Kafka) code(key, version int16, body []byte, read func(*message) (int16, string)) error {
	m, err := b.ask(key, version, body, patience)
	if err != nil {
		return err
	}
	code, text := read(m)
	if m.bad {
		return errors.New("the broker's answer is cut off")
	}
	if code != 0 {
		return fmt.Errorf("the broker answers %d %s", code, text)
	}
	return nil
}
