package testscripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockrun/lockrun/internal/testserver"
)

// readmeServer runs what README.md shows for one kind of server, in a newcomer's environment, with a real server's
// address in place of the one that is written there.
type readmeServer struct {
	t       *testing.T
	text    string // of README.md
	dir     string
	env     []string
	instead *strings.Replacer
}

func newReadmeServer(t *testing.T, instead ...string) *readmeServer {
	t.Helper()
	need(t, "bash")
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(instead); i += 2 {
		if !strings.Contains(string(text), instead[i]) {
			t.Fatalf("README.md does not say %q", instead[i])
		}
	}
	dir := t.TempDir()
	return &readmeServer{t, string(text), dir, readmeEnv(t, dir), strings.NewReplacer(instead...)}
}

// block is the fenced block with this mark, which holds want if there are several.
func (r *readmeServer) block(mark, want string) string {
	r.t.Helper()
	for _, part := range strings.Split(r.text, "\n```"+mark+"\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		if strings.Contains(block, want) {
			return r.instead.Replace(block)
		}
	}
	r.t.Fatalf("README.md has no block %q with %q", mark, want)
	return ""
}

// run runs a block and returns what it printed.
func (r *readmeServer) run(mark string) string {
	r.t.Helper()
	text := r.block(mark, "lockrun ")
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", text)
	cmd.Dir, cmd.Env = filepath.Join(r.dir, "work"), r.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Errorf("%v from:\n%s\nwhich said:\n%s", err, text, out)
	}
	return string(out)
}

// ran wants the output of a run and its record.
func (r *readmeServer) ran(out string) {
	r.t.Helper()
	if !strings.Contains(out, "one of many hosts\n") || !strings.Contains(out, "succeeded") {
		r.t.Errorf("it said:\n%s", out)
	}
}

func TestReadmeRedis(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, testserver.RedisConfig{})
	r := newReadmeServer(t, "redis://redis.example:6379", server.URL())
	r.ran(r.run("shell redis"))
}

func TestReadmeMySQL(t *testing.T) {
	t.Parallel()
	m := testserver.StartMariaDB(t, testserver.MariaDBConfig{})
	password := filepath.Join(t.TempDir(), "mysql.pass")
	write(t, password, []byte("a secret\n"), 0o600)
	r := newReadmeServer(t, "mysql://admin@db.example:3306/jobs", m.URL(), "mysql://lockrun@db.example:3306/jobs", m.URLFor("lockrun", ""),
		"/etc/lockrun/mysql.pass", password, " jobs.*", " "+testserver.Database+".*")
	r.run("shell mysql-init")
	for statement := range strings.SplitSeq(strings.TrimSpace(r.block("sql", "GRANT")), "\n") {
		m.Exec(statement)
	}
	folder := filepath.Join(r.dir, "home", ".config", "lockrun")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "config.toml"), []byte(r.block("toml", "[backends.prod]")), 0o600)
	out := r.run("shell mysql")
	r.ran(out)
	if strings.Contains(out, "a secret") {
		t.Errorf("the password is shown:\n%s", out)
	}
}

func TestReadmeFirestore(t *testing.T) {
	t.Parallel()
	e := testserver.StartFirestore(t)
	r := newReadmeServer(t)
	r.env = append(r.env, "FIRESTORE_EMULATOR_HOST="+e.Addr())
	r.ran(r.run("shell firestore"))
}
