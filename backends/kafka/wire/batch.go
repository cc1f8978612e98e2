package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/segmentio/kafka-go/compress"
)

// The layout of a record batch of magic 2, by the offsets of its fields; see "Record Batch" in Kafka's documentation.
const (
	batchBaseOffset = 0
	batchLength     = 8 // of what follows this field
	batchEpoch      = 12
	batchMagic      = 16
	batchCRC        = 17 // of all that follows this field
	batchAttributes = 21
	batchLastDelta  = 23
	batchFirstTime  = 27
	batchMaxTime    = 35
	batchProducer   = 43
	batchProdEpoch  = 51
	batchSequence   = 53
	batchCount      = 57
	batchHeader     = 61

	attributeCodec   = 0x7
	attributeAppend  = 0x8 // the time is the broker's
	attributeControl = 0x20
)

// maxUnpacked bounds what a compressed batch may grow to.
const maxUnpacked = 64 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Record is one record of the log, as the broker keeps it.
type Record struct {
	Offset  int64
	Time    time.Time // the broker's clock at the append where Appended is set, else whatever the producer said; whole ms, UTC
	Epoch   int32     // of the leader that appended it; rises with each change of the leader
	Key     []byte    // nil where it has none
	Value   []byte    // nil where it has none
	Headers []Header  // nil where it has none
	Control bool      // a marker of somebody's transaction: it takes an offset and holds nothing

	// Appended says that Time is the broker's, which is what message.timestamp.type=LogAppendTime does.
	Appended bool
}

// Header is one header of a record: what belongs to it and is not its value.
type Header struct {
	Name  string
	Value []byte
}

// decodeBatches reads the batches of a fetch, from offset on: brokers keep batches whole, so the first may begin earlier.
// next is the offset after the last whole batch. A batch that is cut off at the end is left for the next fetch.
func decodeBatches(raw []byte, from int64) (records []Record, next int64, err error) {
	next = from
	for len(raw) >= batchMagic+1 {
		size := int(int32(binary.BigEndian.Uint32(raw[batchLength:])))
		whole := batchLength + 4 + size
		if magic := raw[batchMagic]; magic != 2 {
			return records, next, fmt.Errorf("%w: its format is %d, which Kafka before 0.11 wrote", ErrBatch, magic)
		}
		if size < batchHeader-batchLength-4 {
			return records, next, fmt.Errorf("%w: its length is %d", ErrBatch, size)
		}
		if whole > len(raw) {
			break
		}
		batch, last, err := decodeBatch(raw[:whole])
		if err != nil {
			return records, next, err
		}
		for _, r := range batch {
			if r.Offset >= from {
				records = append(records, r)
			}
		}
		next = max(next, last+1)
		raw = raw[whole:]
	}
	return records, next, nil
}

// decodeBatch reads one whole batch. last is its last offset, which may be that of a record that compaction has removed.
func decodeBatch(b []byte) (records []Record, last int64, err error) {
	base := int64(binary.BigEndian.Uint64(b[batchBaseOffset:]))
	if crc32.Checksum(b[batchAttributes:], castagnoli) != binary.BigEndian.Uint32(b[batchCRC:]) {
		return nil, 0, fmt.Errorf("%w: its checksum at offset %d is wrong", ErrBatch, base)
	}
	attributes := binary.BigEndian.Uint16(b[batchAttributes:])
	count := int(int32(binary.BigEndian.Uint32(b[batchCount:])))
	last = base + int64(int32(binary.BigEndian.Uint32(b[batchLastDelta:])))
	body := b[batchHeader:]
	if codec := attributes & attributeCodec; codec != 0 {
		if body, err = unpack(body, codec, maxUnpacked); err != nil {
			return nil, 0, fmt.Errorf("%w at offset %d: %w", ErrBatch, base, err)
		}
	}
	if count < 0 || count > len(body) || base < 0 || last < base {
		return nil, 0, fmt.Errorf("%w: %d records from offset %d to %d", ErrBatch, count, base, last)
	}
	h := header{
		base:     base,
		last:     last,
		first:    int64(binary.BigEndian.Uint64(b[batchFirstTime:])),
		max:      int64(binary.BigEndian.Uint64(b[batchMaxTime:])),
		epoch:    int32(binary.BigEndian.Uint32(b[batchEpoch:])),
		appended: attributes&attributeAppend != 0,
		control:  attributes&attributeControl != 0,
	}
	records, err = h.records(body, count)
	return records, last, err
}

// header is what the records of a batch have in common.
type header struct {
	base, last, first, max int64
	epoch                  int32
	appended, control      bool
}

func (h *header) records(body []byte, count int) ([]Record, error) {
	records := make([]Record, 0, count)
	d := &varints{rest: body}
	for range count {
		one := d.bytes(d.signed())
		if d.bad {
			return nil, fmt.Errorf("%w at offset %d: a record is cut off", ErrBatch, h.base)
		}
		r, err := h.record(one)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

// record reads one record, whose length has been taken off.
func (h *header) record(b []byte) (Record, error) {
	d := &varints{rest: b}
	d.bytes(1) // attributes, unused by Kafka
	timeDelta, offsetDelta := d.signed(), d.signed()
	r := Record{Offset: h.base + offsetDelta, Epoch: h.epoch, Control: h.control, Appended: h.appended}
	r.Key = d.nullable()
	r.Value = d.nullable()
	for n := d.signed(); n > 0 && !d.bad; n-- {
		r.Headers = append(r.Headers, Header{Name: string(d.nullable()), Value: d.nullable()})
	}
	if h.control {
		r.Key, r.Value, r.Headers = nil, nil, nil
	}
	if d.bad || r.Offset < h.base || r.Offset > h.last {
		return r, fmt.Errorf("%w at offset %d: a record cannot be read", ErrBatch, h.base)
	}
	ms := h.first + timeDelta
	if h.appended {
		ms = h.max // the records keep the producer's times: the broker writes its own into the header alone
	}
	r.Time = time.UnixMilli(ms).UTC()
	return r, nil
}

// varints reads Kafka's zigzag numbers and what they count.
type varints struct {
	rest []byte
	bad  bool
}

func (d *varints) signed() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *varints) bytes(n int64) []byte {
	if n < 0 || n > int64(len(d.rest)) {
		d.bad, d.rest = true, nil
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

// nullable reads bytes with their length in front, which is -1 for none.
func (d *varints) nullable() []byte {
	n := d.signed()
	if n == -1 {
		return nil
	}
	return d.bytes(n)
}

// unpack undoes the compression of a foreign producer, up to limit bytes; lockrun itself does not compress.
func unpack(b []byte, attribute uint16, limit int64) ([]byte, error) {
	codec := compress.Compression(attribute).Codec()
	if codec == nil {
		return nil, fmt.Errorf("compression %d is not known", attribute)
	}
	r := codec.NewReader(bytes.NewReader(b))
	defer r.Close()
	out, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", codec.Name(), err)
	}
	if int64(len(out)) > limit {
		return nil, fmt.Errorf("%s: it grows beyond %d bytes", codec.Name(), limit)
	}
	return out, nil
}

// encodeBatch makes the batch of one record. at is the producer's time, which the broker replaces with its own.
func encodeBatch(key, value []byte, headers []Header, at time.Time) []byte {
	record := make([]byte, 0, len(key)+len(value)+16)
	record = append(record, 0)              // attributes
	record = binary.AppendVarint(record, 0) // time, from the batch's first
	record = binary.AppendVarint(record, 0) // offset, from the batch's base
	record = appendNullable(record, key)    //
	record = appendNullable(record, value)  //
	record = binary.AppendVarint(record, int64(len(headers)))
	for _, h := range headers {
		record = appendNullable(appendNullable(record, []byte(h.Name)), h.Value)
	}
	b := make([]byte, batchHeader, batchHeader+len(record)+5)
	b = binary.AppendVarint(b, int64(len(record)))
	b = append(b, record...)

	ms := uint64(at.UnixMilli())
	binary.BigEndian.PutUint32(b[batchLength:], uint32(len(b)-batchLength-4))
	binary.BigEndian.PutUint32(b[batchEpoch:], ^uint32(0)) // not known: -1
	b[batchMagic] = 2
	binary.BigEndian.PutUint64(b[batchFirstTime:], ms)
	binary.BigEndian.PutUint64(b[batchMaxTime:], ms)
	binary.BigEndian.PutUint64(b[batchProducer:], ^uint64(0)) // no producer id, no epoch, no sequence: not idempotent
	binary.BigEndian.PutUint16(b[batchProdEpoch:], ^uint16(0))
	binary.BigEndian.PutUint32(b[batchSequence:], ^uint32(0))
	binary.BigEndian.PutUint32(b[batchCount:], 1)
	binary.BigEndian.PutUint32(b[batchCRC:], crc32.Checksum(b[batchAttributes:], castagnoli))
	return b
}

func appendNullable(b, field []byte) []byte {
	if field == nil {
		return binary.AppendVarint(b, -1)
	}
	return append(binary.AppendVarint(b, int64(len(field))), field...)
}
