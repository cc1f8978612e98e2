package kafka

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"

	"github.com/lockrun/lockrun/backends/kafka/ledger"
)

// bulk appends many records without waiting for each reply, which lockrun itself never does. They are batches of one, as
// lockrun's are: a broker hands out a batch as a whole.
type bulk struct {
	s    *store
	conn net.Conn
	out  []byte // requests that have not been handed over
	n    int    // of them
	full chan requests
	end  chan error
}

// requests are so many in one piece.
type requests struct {
	bytes []byte
	n     int
}

// ahead is how many requests are sent before their replies are read.
const ahead = 200

func (s *store) bulk() *bulk {
	s.Helper()
	conn, err := net.Dial("tcp", s.cluster.Nodes[0].Addr())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { conn.Close() })
	o := &bulk{s: s, conn: conn, full: make(chan requests, 4), end: make(chan error, 1)}
	go func() {
		var err error
		for q := range o.full {
			if err == nil {
				err = o.exchange(q)
			}
		}
		o.end <- err
	}()
	return o
}

func counted(b, field []byte) []byte {
	return append(binary.AppendVarint(b, int64(len(field))), field...)
}

func (o *bulk) add(r ledger.Record) {
	one := counted(counted([]byte{0, 0, 0}, r.Key), r.Value) // attributes, time, offset
	one = counted(counted(binary.AppendVarint(one, 1), []byte(ledger.HeaderName)), r.Carry)
	q := appendRequest(o.s.topic, batch(counted(nil, one)))
	o.out = append(binary.BigEndian.AppendUint32(o.out, uint32(len(q))), q...)
	if o.n++; o.n == ahead {
		o.hand()
	}
}

// hand lets what there is be sent while more is made.
func (o *bulk) hand() {
	o.full <- requests{o.out, o.n}
	o.out, o.n = nil, 0
}

// batch is a record batch of magic 2 with one record and no producer.
func batch(body []byte) []byte {
	be := binary.BigEndian
	rest := be.AppendUint32(be.AppendUint16(nil, 0), 0)
	now := uint64(time.Now().UnixMilli())
	rest = be.AppendUint64(be.AppendUint64(rest, now), now)
	rest = be.AppendUint64(rest, ^uint64(0))
	rest = be.AppendUint32(be.AppendUint16(rest, ^uint16(0)), ^uint32(0))
	rest = append(be.AppendUint32(rest, 1), body...)
	b := be.AppendUint32(be.AppendUint64(nil, 0), uint32(len(rest)+9))
	b = append(be.AppendUint32(b, ^uint32(0)), 2)
	b = be.AppendUint32(b, crc32.Checksum(rest, crc32.MakeTable(crc32.Castagnoli)))
	return append(b, rest...)
}

// appendRequest is a Produce request of version 8.
func appendRequest(topic string, batch []byte) []byte {
	be := binary.BigEndian
	str := func(b []byte, s string) []byte { return append(be.AppendUint16(b, uint16(len(s))), s...) }
	q := be.AppendUint32(be.AppendUint16(be.AppendUint16(nil, 0), 8), 1)
	q = be.AppendUint16(str(q, "bench"), ^uint16(0))            // client, no transaction
	q = be.AppendUint32(be.AppendUint16(q, ^uint16(0)), 60_000) // all replicas, within a minute
	q = be.AppendUint32(str(be.AppendUint32(q, 1), topic), 1)   // one topic, one partition
	return append(be.AppendUint32(be.AppendUint32(q, 0), uint32(len(batch))), batch...)
}

// flush returns when everything has been appended.
func (o *bulk) flush() {
	o.s.Helper()
	o.hand()
	close(o.full)
	if err := <-o.end; err != nil {
		o.s.Fatal(err)
	}
}

// exchange sends requests, and reads the replies.
func (o *bulk) exchange(q requests) error {
	if _, err := o.conn.Write(q.bytes); err != nil {
		return err
	}
	for ; q.n > 0; q.n-- {
		var size [4]byte
		if _, err := io.ReadFull(o.conn, size[:]); err != nil {
			return err
		}
		answer := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(o.conn, answer); err != nil {
			return err
		}
		at := 4 + 4 + 2 + len(o.s.topic) + 4 + 4 // id, topics, name, partitions, partition
		if code := binary.BigEndian.Uint16(answer[at:]); code != 0 {
			return fmt.Errorf("Kafka error %d", code)
		}
	}
	return nil
}
