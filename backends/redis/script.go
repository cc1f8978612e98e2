package redis

import (
	"cmp"
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is one operation of the store, atomic because it is one script.
type script struct {
	files []string // in this order; what they share is kept once
	load  func() (text, sha string)
}

// newScript puts off reading and hashing until the script is used: a run needs three of them.
func newScript(files ...string) *script {
	return &script{files: files, load: sync.OnceValues(func() (string, string) {
		text := ""
		for _, name := range files {
			part, err := luaFiles.ReadFile("lua/" + name + ".lua")
			if err != nil {
				panic(err) // the file is part of this program
			}
			text += string(part)
		}
		sum := sha1.Sum([]byte(text)) // Redis names scripts by it
		return text, hex.EncodeToString(sum[:])
	})}
}

// scripts are all operations that change something, and wait, which registers the waiter.
var scripts = struct {
	acquire, renew, release, abandon, breakLease, record, pause, resume, wait, confirm, restore *script
}{
	acquire:    newScript("lib", "records", "runs", "acquire"),
	renew:      newScript("renew"),
	release:    newScript("lib", "records", "runs", "release"),
	abandon:    newScript("lib", "runs", "abandon"),
	breakLease: newScript("lib", "records", "break"),
	record:     newScript("lib", "records", "record"),
	pause:      newScript("lib", "pause"),
	resume:     newScript("lib", "resume"),
	wait:       newScript("lib", "wait"),
	confirm:    newScript("lib", "runs", "confirm"),
	restore:    newScript("lib", "records", "restore"),
}

// errOdd is an answer that no script of ours gives.
var errOdd = errors.New("the answer was not understood")

// errReplicas is a write that fewer replicas than asked for have acknowledged in time.
var errReplicas = errors.New("too few replicas have acknowledged the write")

// run runs the script in one exchange, and in a second one where this server has not seen it yet: after its start, a
// failover, or SCRIPT FLUSH. Nothing was done in the first one then.
func (s *script) run(ctx context.Context, c *goredis.Client, replicas int, keys []string, args ...any) ([]any, error) {
	text, sha := s.load()
	v, err := evaluate(ctx, c, replicas, func(p goredis.Scripter) *goredis.Cmd { return p.EvalSha(ctx, sha, keys, args...) })
	if says(err, "NOSCRIPT") {
		v, err = evaluate(ctx, c, replicas, func(p goredis.Scripter) *goredis.Cmd { return p.Eval(ctx, text, keys, args...) })
	}
	return v, err
}

// evaluate adds WAIT to the exchange where replicas have to have the write, and ASKING where a slot is being moved.
func evaluate(ctx context.Context, c *goredis.Client, replicas int, call func(goredis.Scripter) *goredis.Cmd) ([]any, error) {
	moving := ctx.Value(asking{}) != nil
	if replicas == 0 && !moving {
		return list(call(c))
	}
	pipe := c.Pipeline()
	if moving {
		pipe.Do(ctx, "ASKING")
	}
	cmd := call(pipe)
	var wait *goredis.Cmd
	if replicas > 0 {
		wait = pipe.Do(ctx, "WAIT", replicas, waitFor(ctx).Milliseconds())
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	v, err := list(cmd)
	if err != nil || wait == nil {
		return v, err
	}
	if n, err := wait.Int(); err != nil || n < replicas && wrote(v) {
		return nil, cmp.Or(err, errReplicas)
	}
	return v, nil
}

// wrote tells whether a script did what it was asked for. A refusal is one whatever the replicas know.
func wrote(v []any) bool { return v[0] != "held" && v[0] != "done" && v[0] != "lost" && v[0] != "free" }

// list is the array that every script of ours answers with.
func list(cmd *goredis.Cmd) ([]any, error) {
	v, err := cmd.Result()
	if err != nil {
		return nil, err
	}
	l, ok := v.([]any)
	if !ok || len(l) == 0 {
		return nil, errOdd
	}
	return l, nil
}
