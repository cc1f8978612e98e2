package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
)

var at = time.UnixMilli(1_700_000_000_123).UTC()

// stamp makes of a producer's batch what a broker keeps: its offset, its leader's epoch and, with LogAppendTime, its time.
// The first two are outside the checksum.
func stamp(b []byte, base int64, epoch int32, appended time.Time) []byte {
	b = bytes.Clone(b)
	binary.BigEndian.PutUint64(b[batchBaseOffset:], uint64(base))
	binary.BigEndian.PutUint32(b[batchEpoch:], uint32(epoch))
	if !appended.IsZero() {
		b[batchAttributes+1] |= attributeAppend
		binary.BigEndian.PutUint64(b[batchMaxTime:], uint64(appended.UnixMilli()))
	}
	return reseal(b)
}

func reseal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[batchCRC:], crc32.Checksum(b[batchAttributes:], castagnoli))
	return b
}

// packed compresses the records of a batch.
func packed(t *testing.T, b []byte, codec compress.Compression) []byte {
	t.Helper()
	var body bytes.Buffer
	w := codec.Codec().NewWriter(&body)
	if _, err := w.Write(b[batchHeader:]); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out := append(bytes.Clone(b[:batchHeader]), body.Bytes()...)
	binary.BigEndian.PutUint32(out[batchLength:], uint32(len(out)-batchLength-4))
	out[batchAttributes+1] |= byte(codec)
	return reseal(out)
}

// many makes a batch of several records out of batches of one.
func many(singles ...[]byte) []byte {
	b := bytes.Clone(singles[0][:batchHeader])
	for i, s := range singles {
		record := s[batchHeader:]
		size, n := binary.Varint(record)
		body := bytes.Clone(record[n:])
		body[2] = byte(i << 1) // the offset's delta, as a zigzag number
		b = append(binary.AppendVarint(b, size), body...)
	}
	binary.BigEndian.PutUint32(b[batchLength:], uint32(len(b)-batchLength-4))
	binary.BigEndian.PutUint32(b[batchLastDelta:], uint32(len(singles)-1))
	binary.BigEndian.PutUint32(b[batchCount:], uint32(len(singles)))
	return reseal(b)
}

func TestDecodeBatches(t *testing.T) {
	broker := at.Add(time.Hour)
	one := encodeBatch([]byte("k"), []byte("v"), []Header{{"h", []byte("x")}}, at)
	bare := encodeBatch(nil, nil, nil, at)
	control := stamp(one, 12, 1, broker)
	control[batchAttributes+1] |= attributeControl
	reseal(control)
	three := stamp(many(one, bare, one), 20, 7, broker)
	for _, c := range []struct {
		name string
		raw  []byte
		from int64
		next int64
		want []Record
	}{
		{"nothing", nil, 5, 5, nil},
		{"the broker's time", stamp(one, 5, 3, broker), 5, 6,
			[]Record{{Offset: 5, Time: broker, Epoch: 3, Key: []byte("k"), Value: []byte("v"), Headers: []Header{{"h", []byte("x")}}, Appended: true}}},
		{"the producer's time", stamp(bare, 5, 3, time.Time{}), 5, 6, []Record{{Offset: 5, Time: at, Epoch: 3}}},
		{"a marker of a transaction", control, 12, 13, []Record{{Offset: 12, Time: broker, Epoch: 1, Control: true, Appended: true}}},
		{"from the middle of a batch", three, 22, 23,
			[]Record{{Offset: 22, Time: broker, Epoch: 7, Key: []byte("k"), Value: []byte("v"), Headers: []Header{{"h", []byte("x")}}, Appended: true}}},
		{"two batches, the second cut off", append(stamp(bare, 5, 3, broker), three[:len(three)-1]...), 5, 6,
			[]Record{{Offset: 5, Time: broker, Epoch: 3, Appended: true}}},
		{"a batch cut off in its header", three[:batchMagic], 5, 5, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, next, err := decodeBatches(c.raw, c.from)
			if err != nil || next != c.next || !equal(got, c.want) {
				t.Errorf("got %+v, next %d, %v", got, next, err)
			}
		})
	}
}

func equal(a, b []Record) bool {
	return slices.EqualFunc(a, b, func(x, y Record) bool {
		return x.Offset == y.Offset && x.Time.Equal(y.Time) && x.Epoch == y.Epoch && bytes.Equal(x.Key, y.Key) && (x.Key == nil) == (y.Key == nil) &&
			bytes.Equal(x.Value, y.Value) && (x.Value == nil) == (y.Value == nil) && x.Control == y.Control && x.Appended == y.Appended &&
			slices.EqualFunc(x.Headers, y.Headers, func(h, i Header) bool { return h.Name == i.Name && bytes.Equal(h.Value, i.Value) })
	})
}

// Compaction takes records out of a batch and leaves its last offset, which is where to go on.
func TestDecodeKeepsTheEndOfAThinnedBatch(t *testing.T) {
	one := stamp(encodeBatch([]byte("k"), nil, nil, at), 30, 0, at)
	binary.BigEndian.PutUint32(one[batchLastDelta:], 9)
	got, next, err := decodeBatches(reseal(one), 30)
	if err != nil || len(got) != 1 || next != 40 {
		t.Errorf("%+v, next %d, %v", got, next, err)
	}
}

func TestDecodeCompressed(t *testing.T) {
	value := bytes.Repeat([]byte("lease "), 500)
	plain := encodeBatch([]byte("k"), value, nil, at)
	for _, codec := range []compress.Compression{compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd} {
		t.Run(codec.String(), func(t *testing.T) {
			raw := stamp(packed(t, plain, codec), 5, 2, at)
			got, _, err := decodeBatches(raw, 0)
			if err != nil || len(got) != 1 || !bytes.Equal(got[0].Value, value) {
				t.Errorf("%d records, %v", len(got), err)
			}
		})
	}
	// A few kilobytes must not become gigabytes.
	const limit = 1 << 16
	for size, fits := range map[int]bool{limit: true, limit + 1: false} {
		raw := packed(t, append(make([]byte, batchHeader), make([]byte, size)...), compress.Zstd)[batchHeader:]
		if got, err := unpack(raw, uint16(compress.Zstd), limit); (err == nil) != fits || fits && len(got) != size {
			t.Errorf("%d bytes out of %d: %d, %v", size, len(raw), len(got), err)
		}
	}
}

func TestDecodeRefusesDamage(t *testing.T) {
	good := stamp(encodeBatch([]byte("key"), []byte("value"), nil, at), 5, 1, at)
	spoil := func(f func([]byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return b
	}
	for name, raw := range map[string][]byte{
		"a flipped bit":          spoil(func(b []byte) { b[len(b)-2] ^= 4 }),
		"the format before 0.11": spoil(func(b []byte) { b[batchMagic] = 1 }),
		"a length of nothing":    spoil(func(b []byte) { binary.BigEndian.PutUint32(b[batchLength:], 10) }),
		"too many records":       spoil(func(b []byte) { b[batchCount] = 0x7f; reseal(b) }),
		"a negative count":       spoil(func(b []byte) { b[batchCount] = 0xff; reseal(b) }),
		"an unknown compression": spoil(func(b []byte) { b[batchAttributes+1] = 5; reseal(b) }),
		"a false compression":    spoil(func(b []byte) { b[batchAttributes+1] = 1; reseal(b) }),
		"a record too long":      spoil(func(b []byte) { b[batchHeader] = 0x7e; reseal(b) }),
		"an end before its base": spoil(func(b []byte) { b[batchLastDelta] = 0xff; reseal(b) }),
	} {
		if got, _, err := decodeBatches(raw, 0); !errors.Is(err, ErrBatch) {
			t.Errorf("%s: read %+v, %v", name, got, err)
		}
	}
}

func FuzzDecodeBatches(f *testing.F) {
	one := stamp(encodeBatch([]byte("k"), []byte("v"), []Header{{"h", nil}}, at), 5, 3, at)
	f.Add(one, int64(0))
	f.Add(stamp(many(one, one), 5, 3, time.Time{}), int64(6))
	f.Add(append(bytes.Clone(one), one[:40]...), int64(5))
	f.Fuzz(func(t *testing.T, raw []byte, from int64) {
		// The checksum would keep the fuzzer out of everything behind it.
		sealed := bytes.Clone(raw)
		if len(sealed) > batchHeader {
			if n := int(binary.BigEndian.Uint32(sealed[batchLength:])) + batchLength + 4; n > batchHeader && n <= len(sealed) {
				binary.BigEndian.PutUint32(sealed[batchCRC:], crc32.Checksum(sealed[batchAttributes:n], castagnoli))
			}
		}
		got, next, err := decodeBatches(sealed, from)
		if next < from {
			t.Errorf("going back from %d to %d", from, next)
		}
		for _, r := range got {
			if r.Offset < from || err == nil && r.Offset >= next {
				t.Errorf("offset %d outside of %d to %d", r.Offset, from, next)
			}
		}
	})
}
