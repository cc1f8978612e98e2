package redis

import (
	"errors"
	"strings"
	"testing"
)

// Answers come in pieces, and pieces hold several answers.
func TestFramesLetThroughWhatServersSay(t *testing.T) {
	text := "+OK\r\n-ERR no\r\n:42\r\n$-1\r\n$0\r\n\r\n$5\r\nab\r\n\n\r\n*-1\r\n*0\r\n*2\r\n*1\r\n$2\r\nhi\r\n*2\r\n:1\r\n$3\r\n*9\n\r\n+end\r\n"
	for size := 1; size <= len(text); size++ {
		var f frames
		for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
			if err := f.look([]byte(rest[:min(size, len(rest))])); err != nil {
				t.Fatalf("in pieces of %d: %v", size, err)
			}
		}
		if len(f.open) != 0 || f.bulk != 0 || len(f.line) != 0 {
			t.Errorf("in pieces of %d: %+v is left", size, f)
		}
	}
}

func TestFramesRefuseWhatNoServerSays(t *testing.T) {
	for _, text := range []string{
		"$9223372036854775807\r\n", "$300000000000\r\n", "$16777217\r\n", "$-2\r\n", "$\r\n", "$1x\r\n", "*20000000000\r\n", "*1048577\r\n", "*-7\r\n",
		"%9999999999\r\n", "~1\r\n", ">1\r\n", "=4\r\n", "!4\r\n", "HTTP/1.1 400 Bad Request\r\n", "\r\n", "\n",
		"+" + strings.Repeat("a", maxLine), strings.Repeat("*1\r\n", maxDepth+1), "*2\r\n:1\r\n$99999999999\r\n",
	} {
		for _, size := range []int{1, 7, len(text)} {
			var f frames
			var err error
			for rest := text; rest != "" && err == nil; rest = rest[min(size, len(rest)):] {
				err = f.look([]byte(rest[:min(size, len(rest))]))
			}
			if !errors.Is(err, errNotRedis) {
				t.Errorf("%.40q in pieces of %d: %v", text, size, err)
			}
		}
	}
}

// Nothing that a server sends makes this panic, or remember without bound.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\na\r\n:1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var x frames
		_ = x.look(b)
		if len(x.line) > maxLine || len(x.open) > maxDepth || x.bulk > maxBulk+2 || x.bulk < 0 {
			t.Errorf("%+v", x)
		}
	})
}
