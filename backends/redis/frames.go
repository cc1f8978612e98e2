package redis

import (
	"bytes"
	"fmt"
	"strconv"
)

// What a server may answer at most. go-redis believes every length that it reads and asks for that much memory at once, so
// that one line of a hostile server, or of a damaged connection, would end lockrun in the middle of a run; and it takes a
// line that never ends, and arrays in arrays, for as long as they come. Our longest answers are the keys of a bucket and the
// records of a key, far below.
const (
	maxLine  = 64 << 10
	maxBulk  = 16 << 20
	maxArray = 1 << 20 // elements
	maxDepth = 8       // arrays in arrays
)

// frames looks at answers as they are read, a piece at a time, and refuses what is too large, or no answer in RESP2, before
// go-redis sees it.
type frames struct {
	line []byte // what has come of the present line
	bulk int    // bytes of a string that are still to come, with its line's end
	open []int  // for each array that has not ended, how many elements are still to come
}

// look is given what was read. After an error the connection is of no use any more.
func (f *frames) look(b []byte) error {
	for len(b) > 0 {
		if f.bulk > 0 {
			n := min(f.bulk, len(b))
			f.bulk -= n
			b = b[n:]
			if f.bulk == 0 {
				f.element()
			}
			continue
		}
		n := bytes.IndexByte(b, '\n') + 1
		whole := n > 0
		if !whole {
			n = len(b)
		}
		if len(f.line)+n > maxLine {
			return fmt.Errorf("%w: a line of more than %d bytes", errNotRedis, maxLine)
		}
		f.line = append(f.line, b[:n]...)
		b = b[n:]
		if !whole {
			return nil
		}
		if err := f.head(bytes.TrimRight(f.line, "\r\n")); err != nil {
			return err
		}
		f.line = f.line[:0]
	}
	return nil
}

// head takes the line that a value begins with.
func (f *frames) head(line []byte) error {
	if len(line) == 0 {
		return fmt.Errorf("%w: an empty line", errNotRedis)
	}
	switch line[0] {
	case '+', '-', ':':
		f.element()
		return nil
	case '$', '*':
	default:
		return fmt.Errorf("%w: %.60q", errNotRedis, line)
	}
	n, err := strconv.Atoi(string(line[1:]))
	limit := maxBulk
	if line[0] == '*' {
		limit = maxArray
	}
	switch {
	case err != nil || n < -1 || n > limit || line[0] == '*' && len(f.open) == maxDepth:
		return fmt.Errorf("%w: a length that cannot be, %.60q", errNotRedis, line)
	case n == -1 || n == 0 && line[0] == '*':
		f.element()
	case line[0] == '*':
		f.open = append(f.open, n)
	default:
		f.bulk = n + len("\r\n")
	}
	return nil
}

// element counts a value that has ended, and the arrays that end with it.
func (f *frames) element() {
	for last := len(f.open) - 1; last >= 0; last-- {
		f.open[last]--
		if f.open[last] > 0 {
			return
		}
		f.open = f.open[:last]
	}
}
