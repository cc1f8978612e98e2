package zookeeper

import (
	"encoding/binary"
	"fmt"
)

// maxAnswer bounds an answer. Servers send a megabyte unless told otherwise (jute.maxbuffer), and lists of names more.
const maxAnswer = 64 << 20

// minAnswer is what each answer begins with: a number, a transaction and an error.
const minAnswer = 16

// lengths looks at the length in front of each answer as it is read. The client takes any for granted and asks for that much
// memory at once: four bytes of a hostile server, or of another protocol, would cost 4 GB. One that is too short would end
// the program with a panic.
type lengths struct {
	head []byte // what has come of the present length
	body int    // bytes of the present answer that are still to come
}

// look is given what was read. After an error the connection is of no use any more.
func (f *lengths) look(b []byte) error {
	for len(b) > 0 {
		if f.body > 0 {
			n := min(f.body, len(b))
			f.body -= n
			b = b[n:]
			continue
		}
		n := min(4-len(f.head), len(b))
		f.head = append(f.head, b[:n]...)
		b = b[n:]
		if len(f.head) < 4 {
			return nil
		}
		size := binary.BigEndian.Uint32(f.head)
		if size < minAnswer || size > maxAnswer {
			return fmt.Errorf("an answer that begins with %q: not a ZooKeeper server's", f.head)
		}
		f.body, f.head = int(size), f.head[:0]
	}
	return nil
}
