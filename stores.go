package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockrun/lockrun/backends"
)

// settleStores turns what was said about backends into stores: names become what the configuration files say of them.
func (s *settler) settleStores() {
	c := s.cfg
	for _, raw := range c.backendNames {
		c.Backends = append(c.Backends, s.store("backend", raw))
	}
	if len(c.Backends) == 0 {
		c.Backends = []Store{{}}
	}
	if c.recordName != "" {
		st := s.store("record", c.recordName)
		c.Record = &st
	}
	if c.OnUnavail == "fallback" {
		st := Store{}
		if c.fallbackName != "" {
			st = s.store("fallback", c.fallbackName)
		}
		c.Fallback = &st
	}
	s.validateStores()
}

// store is the store that an option names.
func (s *settler) store(id, raw string) Store {
	set := s.chosen[id]
	if isURL(raw) {
		if set.level == fromFlag && hasPassword(raw) {
			s.cfg.Warnings = append(s.cfg.Warnings, "the password in --"+id+" can be read by everybody on this host (ps); use a password_file")
		}
		return Store{URL: raw, From: set.from}
	}
	for _, f := range s.files {
		if b, ok := f.backends[raw]; ok {
			return Store{URL: b.url, Name: raw, Password: s.readPassword(b), From: b.from}
		}
	}
	o := findOption(s.verb.bit, id)
	s.problems = append(s.problems, set.problem(o, fmt.Sprintf("%s is neither a URL nor a [backends.NAME] of a configuration file; %s", quoted(raw), s.knownBackends())))
	return Store{URL: raw}
}

// isURL tells what names a store by its URL, be it one that cannot be read, from a [backends.NAME].
func isURL(raw string) bool { return strings.ContainsAny(raw, ":/") }

func (s *settler) knownBackends() string {
	names := map[string]bool{}
	for _, f := range s.files {
		for n := range f.backends {
			names[n] = true
		}
	}
	if len(names) == 0 {
		return "none is configured"
	}
	return "configured are " + strings.Join(sortedKeys(names), ", ")
}

// readPassword reads a password file. A newline at its end belongs to the editor, not to the password.
func (s *settler) readPassword(b namedBackend) string {
	if b.passwordFile == "" {
		return ""
	}
	data, err := readBounded(b.passwordFile)
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case err != nil:
		s.wrong(codeConfig, "%s: password_file %s cannot be read: %v%s", b.from, b.passwordFile, pathCause(err), readable(err))
	case text == "":
		s.wrong(codeConfig, "%s: password_file %s is empty", b.from, b.passwordFile)
	}
	return text
}

// validateStores refuses stores that stand twice where only different ones make sense: two leases of one key would exclude
// each other, and a store that does not answer is no help against itself. What only the stores' own names tell is found when
// they are opened.
func (s *settler) validateStores() {
	c := s.cfg
	s.validateSessions()
	for i, st := range c.Backends {
		if slices.ContainsFunc(c.Backends[:i], func(o Store) bool { return sameStore(o, st) }) {
			s.conflict([]string{"backend"}, "%s names %s twice, and a run cannot hold the lease of a store beside itself; leave one of them out",
				s.chosen["backend"].from, st.shown())
		}
	}
	if c.Fallback == nil {
		if s.chosen["fallback"].level == fromFlag {
			s.wrong(codeUsage, "--fallback has no use without --on-unavailable fallback")
		}
		return
	}
	for _, st := range c.Backends {
		if sameStore(st, *c.Fallback) {
			s.conflict([]string{"fallback", "on-unavailable", "backend"}, "the fallback and the backend are the same store (%s), which cannot stand in for itself; name another with --fallback", st.shown())
			return
		}
	}
}

// validateSessions asks for a process that lives as long as the lease, where the lease would not outlive it anyway.
func (s *settler) validateSessions() {
	if !s.verb.is(vAcquire) || s.given("while-pid") {
		return
	}
	for _, st := range s.cfg.Backends {
		scheme, _, _ := strings.Cut(st.URL, "://")
		if sessionBound[strings.ToLower(scheme)] {
			s.wrong(codeUsage, "a lease on %s lives in a session, which somebody has to keep up: add --while-pid PID, in a script --while-pid $$", st.shown())
		}
	}
}

// shown is how messages call a store before it is opened, without secrets.
func (st Store) shown() string {
	switch {
	case st.URL == "":
		return "the embedded store"
	case st.Name != "":
		return st.Name
	}
	return backends.Redact(st.URL)
}

// sameStore tells whether a and b name the same store for all that their URLs tell. Users and parameters do not count.
func sameStore(a, b Store) bool {
	if a == b {
		return true
	}
	ua, errA := a.parse()
	ub, errB := b.parse()
	return errA == nil && errB == nil && canonical(ua) == canonical(ub)
}

// defaultPorts are those of a URL that names none.
var defaultPorts = map[string]string{
	"redis": "6379", "rediss": "6379", "redis+cluster": "6379", "redis+quorum": "6379", "redis+sentinel": "26379",
	"mysql": "3306", "kafka": "9092", "zookeeper": "2181",
}

// canonical is the place that a URL names, in one form.
func canonical(u *backends.URL) string {
	scheme, path := u.Scheme, strings.TrimSuffix(u.Path, "/")
	switch {
	case scheme == "sqlite":
		path = filepath.Clean(u.Path)
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
	case scheme == "redis", scheme == "rediss":
		scheme = "redis"
		if path == "/0" {
			path = ""
		}
	}
	hosts := slices.Clone(u.Hosts)
	for i, h := range hosts {
		if strings.LastIndexByte(h, ':') <= strings.LastIndexByte(h, ']') {
			h += ":" + defaultPorts[u.Scheme]
		}
		hosts[i] = strings.ToLower(h)
	}
	slices.Sort(hosts)
	place := scheme + "://" + strings.Join(hosts, ",") + path
	for _, name := range []string{"socket", "table", "prefix"} { // these name places as well
		place += "\n" + strings.Join(u.Query[name], "\n")
	}
	return place
}
