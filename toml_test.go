package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestConfigFileProblemsNameFileAndLine(t *testing.T) {
	text := `ttl = "45m"
ttk = "45m"
slots = "2"
wait = 5
quiet = "yes"
exit_code = ["skipped=0"]
key.sub = 1
jobs.flat = 1
[jobs."a/b"]
ttl = "1s"
tttl = "1s"
key = "k"
[jobs.x.y]
z = 1
[backends.one]
uri = "secret"
[backends.two]
url = ""
password_file = 7
[other]
a = 1
`
	_, problems := parseConfig("f.toml", []byte(text))
	var got []string
	for _, p := range problems {
		if p.code != codeConfig {
			t.Errorf("code %d: %s", p.code, p.text)
		}
		got = append(got, p.text)
	}
	for _, want := range []string{
		"f.toml:2: unknown key ttk; ",
		"f.toml:3: slots is not a whole number",
		"f.toml:4: wait is not a string; put it in quotes",
		"f.toml:5: quiet is neither true nor false",
		"f.toml:6: exit_code is not a table of numbers; write it like { skipped = 0 }",
		"f.toml:7: key is not a string",
		"f.toml:8: jobs.flat is not a table; write [jobs.flat]",
		"f.toml:11: unknown key tttl in [jobs.a/b]",
		"f.toml:12: key has no place in a job's table, whose name is the key",
		`f.toml:13: unknown key y in [jobs.x]; the name of a job with a dot in it is quoted: [jobs."x.y"]`,
		"f.toml:16: unknown key uri in [backends.one]; url and password_file are known",
		"f.toml:15: [backends.one] has no url",
		"f.toml:18: url is not a string with something in it",
		"f.toml:19: password_file is not a string",
		"f.toml:17: [backends.two] has no url",
		"f.toml:20: unknown key other",
	} {
		found := false
		for i, g := range got {
			if strings.HasPrefix(g, want) {
				got, found = append(got[:i], got[i+1:]...), true
				break
			}
		}
		if !found {
			t.Errorf("not told: %s", want)
		}
	}
	for _, g := range got {
		t.Errorf("told besides: %s", g)
	}
	if all := fmt.Sprint(problems); strings.Contains(all, "secret") {
		t.Errorf("a value is shown: %s", all)
	}
}

func TestConfigFileSyntax(t *testing.T) {
	for text, want := range map[string]string{
		"a = \n":                        "f.toml:1: ",
		"ttl = '1s'\nttl = '2s'":        "f.toml:2: key 'ttl' has already been defined",
		"ttl = '1s'\n\n[jobs\n":         "f.toml:4: ",
		"[[jobs]]\nttl = '1s'":          "f.toml:1: jobs is not a table; write [jobs.NAME]",
		"x = '\x00'":                    "f.toml:1: ",
		"ttl = '1s'\n[backends]\na=1":   "f.toml:3: backends.a is not a table; write [backends.a]",
		"jobs = 3":                      "f.toml:1: jobs is not a table",
		"ttl = '1s'\nexit_code.a = 'b'": "f.toml:2: exit_code is not a table of numbers",
	} {
		_, problems := parseConfig("f.toml", []byte(text))
		if len(problems) != 1 || !strings.HasPrefix(problems[0].text, want) || strings.Contains(problems[0].text, "\n") || strings.HasSuffix(problems[0].text, ".") {
			t.Errorf("%q: %v; want %s", text, problems, want)
		}
	}
}

func TestConfigFileIsBounded(t *testing.T) {
	_, problems := readConfig(file(t, "big.toml", strings.Repeat("#", maxConfig+1)), false)
	if len(problems) != 1 || !strings.Contains(problems[0].text, "larger than 1 MiB") {
		t.Errorf("%v", problems)
	}
	if f, problems := readConfig("/nonexistent/c.toml", true); f != nil || problems != nil {
		t.Errorf("a missing default file: %v %v", f, problems)
	}
	under := file(t, "plain", "")
	if f, problems := readConfig(under+"/c.toml", true); f != nil || problems != nil {
		t.Errorf("a default file below a plain file: %v %v", f, problems)
	}
	if os.Getuid() != 0 {
		path := file(t, "secret.toml", "")
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		if _, problems := readConfig(path, true); len(problems) != 1 || !strings.Contains(problems[0].text, "permission denied") {
			t.Errorf("a default file that may not be read: %v", problems)
		}
	}
}

func FuzzConfigFile(f *testing.F) {
	f.Add("ttl = '45m'\n[jobs.k]\nexit_code = { skipped = 0 }\n[backends.p]\nurl = 'sqlite:///x'\npassword_file = 'y'")
	f.Add("[[jobs]]\n[jobs.a.b]\n\"\" = 1\na.b.c = [ {x = 1}, 2 ]")
	f.Fuzz(func(t *testing.T, text string) {
		c, problems := parseConfig("f.toml", []byte(text))
		if c == nil {
			t.Fatal("no file")
		}
		for _, p := range problems {
			if !strings.HasPrefix(p.text, "f.toml:") || p.code != codeConfig {
				t.Errorf("%d %q", p.code, p.text)
			}
		}
	})
}

func FuzzExitCode(f *testing.F) {
	for _, s := range []string{"skipped=0", "skipped=256", "=", "lost=-1", "done=+1", "done= 1", "done=0x1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, code, err := parseExitCode(s)
		if _, known := exitNames[name]; err == nil && (code < 0 || code > 255 || !known) {
			t.Errorf("%q gives %s=%d", s, name, code)
		}
	})
}

// The cost of a file grows with its size, and not with its square. What is counted is memory, which a busy machine does not
// change.
func TestTheCostOfAConfigFileGrowsWithItsSize(t *testing.T) {
	for what, line := range map[string]string{"settings": `ttl = "45m"`, "mistakes": `ttk = "45m"`} {
		cost := func(n int) uint64 {
			text := []byte(lines(n, "[jobs.job%d]\n"+line+"\n"))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c, problems := parseConfig("f.toml", text)
			runtime.ReadMemStats(&after)
			if len(c.jobs) != n || what == "mistakes" && len(problems) != n {
				t.Fatalf("%d %s: %d jobs and %d problems", n, what, len(c.jobs), len(problems))
			}
			return after.TotalAlloc - before.TotalAlloc
		}
		if few, many := cost(200), cost(3200); many > 32*few {
			t.Errorf("%s: 200 jobs cost %d bytes, and 16 times as many %d", what, few, many)
		}
	}
}

func TestKeysThatNeverEndAreRefused(t *testing.T) {
	for what, text := range map[string]string{
		"inline tables":   "\na=" + strings.Repeat("{a=", 50000),
		"arrays":          "\na=" + strings.Repeat("[", 1<<20-10),
		"dots":            "\na" + strings.Repeat(".a", 50000) + "=1",
		"dotted tables":   "\n[a" + strings.Repeat(".a", 50000) + "]",
		"a long name":     "\n[" + strings.Repeat("a", 500000) + "]\n" + lines(50000, "a%d=1\n"),
		"long in quotes":  "\n[ '" + strings.Repeat("a", 500000) + "' ]\n" + lines(50000, "a%d=1\n"),
		"many in a table": "\n[" + strings.Repeat("a.", 100) + "a]\n" + lines(50000, "a%d=1\n"),
	} {
		_, problems := parseConfig("f.toml", []byte(text))
		if len(problems) != 1 || !strings.HasPrefix(problems[0].text, "f.toml:") || !strings.Contains(problems[0].text, "nested too deeply") {
			t.Errorf("%s: %d problems, the first %.200v", what, len(problems), problems[:1])
		}
	}
}

func TestKeysThatAreLongAndManyAreRead(t *testing.T) {
	for what, text := range map[string]string{
		"strings":  lines(7000, "[jobs.j%d]\nholder = \""+strings.Repeat("{[.=", 20)+"\"\n"),
		"comments": lines(7000, "# %d "+strings.Repeat("{[.=", 20)+"\n"),
		"keys": lines(600, "[jobs.\"%04d"+strings.Repeat(`\u0001`, 251)+"\"]\nttl = '1h'\nwait = '''5m'''\n"+
			"hook.failed = [\"a\", # ]\n\"b\"]\nexit_code = { skipped = 0 }\n"),
	} {
		if _, problems := parseConfig("f.toml", []byte(text)); problems != nil || len(text) > maxConfig {
			t.Errorf("%s, %d bytes: %.200v", what, len(text), problems)
		}
	}
}

func lines(n int, format string) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, format, i)
	}
	return text.String()
}
