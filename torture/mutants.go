package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// mutant is a lockrun with one safety rule taken out. It is made by an overlay over the source files, so that the product
// holds nothing of it. Where the text to replace is not found exactly once, the mutant is out of date, which is an error.
type mutant struct {
	name  string
	store string // where it is tortured
	fault string // the only faults of the store that it needs; "none": none
	edits []edit
	rules []string // of which one has to be found broken
}

type edit struct{ file, from, to string }

// mutants are the mistakes that a lock of this kind is known for. Each was made by some peer.
var mutants = []mutant{
	{name: "no deadline", store: "sqlite", fault: "none", rules: []string{ruleOverlap}, edits: []edit{
		{"run.go", `	if r.cfg.OnLost == "continue" {
		deadline.Never()`, `	if r.cfg.OnLost != "" {
		deadline.Never()`},
		{"heartbeat.go", `	if k.now() >= until {
		k.to(stateLost, errDeadline)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state`, `	_ = until
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state`},
	}},
	{name: "the owner is not compared", store: "sqlite", fault: "none", rules: []string{ruleOverlap}, edits: []edit{
		{"backends/sqlite/lease.go", `if rows[i].owner == h.owner && rows[i].token == h.g.Token {`, `if rows[i].slot == h.slot {`},
	}},
	{name: "token from the host's clock", store: "sqlite", fault: "none", rules: []string{ruleToken}, edits: []edit{
		{"record.go", `strconv.FormatInt(g.Token, 10)`, `strconv.FormatInt(time.Now().Unix(), 10)`},
	}},
	{name: "skip on error", store: "sqlite", fault: "locked", rules: []string{ruleSkip}, edits: []edit{
		{"refuse.go", `		return r.cfg.exit(codeUnavailable), err.Error(), true`, `		return r.cfg.exit(codeSkipped), err.Error(), true`},
	}},
	{name: "release before the tree is gone", store: "sqlite", fault: "none", rules: []string{ruleOverlap}, edits: []edit{
		{"internal/supervise/stop.go", `	if t.left = t.countLeft(); t.left == 0 {`, `	if t.left = 0; t.left == 0 {`},
	}},
	{name: "a guard that kills nothing", store: "sqlite", fault: "none", rules: []string{ruleOverlap, ruleGone}, edits: []edit{
		{"internal/supervise/proctree.c", "void tree_strike(struct tree *t) {\n", "void tree_strike(struct tree *t) {\n	return;\n"},
		{"internal/supervise/proctree.c", "int tree_kill(struct tree *t) {\n", "int tree_kill(struct tree *t) {\n	return 0;\n"},
	}},
	{name: "redis: release without comparing the owner", store: "redis", fault: "none", rules: []string{ruleOverlap}, edits: []edit{
		{"backends/redis/lua/release.lua", `if not r or r.owner ~= ARGV[1] or not live(r, now) then`, `if not r then`},
	}},
	{name: "redis: a lost reply is not recognised", store: "redis", fault: "lost", rules: []string{ruleSkip}, edits: []edit{
		{"backends/redis/lua/acquire.lua", `  if r.owner == owner and r.state ~= 'R' then`, `  if r.owner == '' then`},
	}},
	{name: "mariadb: tokens are not counted", store: "mariadb", fault: "none", rules: []string{ruleToken}, edits: []edit{
		{"backends/mysql/acquiretext.go", "SET token = {new_token}{start} WHERE", "SET token = token{start} WHERE"},
	}},
	{name: "mariadb: a lease that has not run out is taken", store: "mariadb", fault: "none", rules: []string{ruleOverlap}, edits: []edit{
		{"backends/mysql/sql.go", `return "(l.released = 0 AND l.expire_time > " + at + ")"`, `return "(l.released = 0 AND l.renew_time + INTERVAL l.ttl_us DIV 4 MICROSECOND > " + at + ")"`},
	}},
}

// mutantTime is how long a mutant may go unnoticed.
const mutantTime = 4 * time.Minute

// findMutants builds and tortures each, and fails where one is not found out.
func (o *options) findMutants(b *builder) (int, error) {
	code := 0
	fmt.Printf("seed %d\n\n| mutant | store | found | after | by |\n|---|---|---|---|---|\n", o.seed)
	for _, m := range mutants {
		if !contains(m.name, o.names) || o.on != "" && !contains(o.on, m.store) {
			continue
		}
		r, err := o.findMutant(b, m)
		if err != nil {
			return 2, fmt.Errorf("%s: %w", m.name, err)
		}
		by, found := m.found(r)
		if !found {
			code = 1
		}
		fmt.Printf("| %s | %s | %v | %d grants, %v | %s |\n", m.name, m.store, found, r.grants, r.took.Round(time.Second), strings.ReplaceAll(by, "|", "/"))
	}
	return code, nil
}

func (o *options) findMutant(b *builder, m mutant) (*report, error) {
	dir, err := os.MkdirTemp(b.dir, "mutant-")
	if err != nil {
		return nil, err
	}
	overlay, err := m.overlay(b.source, dir)
	if err != nil {
		return nil, err
	}
	c := o.config
	built := *b
	built.dir = dir
	if c.lockrun, err = built.lockrun(overlay); err != nil {
		return nil, err
	}
	c.only, c.quick, c.harmed, c.rules, c.crowded = m.fault, true, 50, m.rules, m.rules[0] == ruleOverlap
	c.timeout = min(c.timeout, 700*time.Millisecond) // so that faults are noticed that do not last
	if c.atMost == 0 {
		c.atMost = mutantTime
	}
	for _, s := range stores {
		if s.name == m.store {
			return perform(func(t *stage) *report { return play(t, c, s.build) })
		}
	}
	return nil, fmt.Errorf("there is no store %q", m.store)
}

// found tells by which rule a mutant was found out.
func (m *mutant) found(r *report) (string, bool) {
	for _, v := range r.violations {
		for _, rule := range m.rules {
			if v.Rule == rule {
				return v.String(), true
			}
		}
	}
	return fmt.Sprint(r.violations), false
}

// overlay writes the changed files, and the list that go build wants.
func (m *mutant) overlay(source, dir string) (string, error) {
	source, err := filepath.Abs(source)
	if err != nil {
		return "", err
	}
	changed := map[string]string{}
	for _, e := range m.edits {
		file := filepath.Join(source, e.file)
		text, known := changed[file]
		if !known {
			b, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.from); n != 1 {
			return "", fmt.Errorf("%s: the mutant is out of date, its text is there %d times: %q", e.file, n, e.from)
		}
		changed[file] = strings.Replace(text, e.from, e.to, 1)
	}
	replace := map[string]string{}
	for file, text := range changed {
		to := filepath.Join(dir, fmt.Sprint(len(replace))+filepath.Ext(file))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[file] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, "overlay.json")
	return to, os.WriteFile(to, list, 0o644)
}
