package main

import (
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// kind is how an option's text becomes a value.
type kind int

const (
	kindText     kind = iota // any text but the empty one
	kindChoice               // one of option.choices
	kindDuration             // positive; Go's syntax and d for days
	kindSpan                 // a duration that may be 0
	kindWait                 // a span, or "forever"
	kindCount                // a whole number from option.min on
	kindSwitch               // true or false
	kindPairs                // NAME=N, repeatable, one a line in the variable
	kindList                 // texts, repeatable, one a line in the variable; in the file one or an array of them
	kindLength               // positive, or "auto"
	kindHooks                // EVENT=COMMAND, in the same way
)

// verb is a set of lockrun's verbs.
type verb uint32

const (
	vRun verb = 1 << iota
	vStatus
	vHistory
	vUnlock
	vAcquire
	vRenew
	vRelease
	vInit
	vDoctor
	vPause
	vResume
	vMetrics
	vVersion
	vCompletion
	vHelp

	vLease = vRun | vAcquire
	vStore = vLease | vRenew | vRelease | vStatus | vHistory | vUnlock | vInit | vDoctor | vPause | vResume | vMetrics
	vAny   = vStore | vVersion | vCompletion | vHelp
)

// option is one setting of lockrun. Flags, variables, configuration keys, help and completion are all made from the
// table of these, so that none of them can be forgotten.
type option struct {
	name    string // the flag without dashes; "" where there is no flag
	short   string // one letter; "" for none
	env     bool   // is also a variable, LOCKRUN_ and the name in capitals
	toml    string // key in the configuration file; "" where it would make no sense there
	verbs   verb
	kind    kind
	arg     string // how help names the value
	def     string // default, as help tells it
	help    string
	choices string             // kindChoice: the words, separated by spaces
	min     int                // kindCount
	check   func(string) error // kindText: what else the text has to be; nil for a path or URL, where the system decides
	once    bool               // giving the flag twice is refused: each value would mean a lock that is not taken
	outer   bool               // the variable is what a child is given, or about the outer run: it is read only where LOCKRUN_OWNER is not set
	off     bool               // an empty string in a file switches off what files of less weight, or the file itself for all jobs, ask for

	// at is where the value goes.
	at func(*Config) any
}

// options is the table, in the order in which help tells it.
var options = examinable([]option{
	{name: "key", short: "k", env: true, toml: "key", verbs: vLease | vRenew | vRelease, arg: "KEY", def: "required", once: true, outer: true,
		help: "name of the lease: 1 to 255 bytes of UTF-8, compared byte by byte",
		at:   func(c *Config) any { return &c.Key }},
	{name: "backend", short: "b", env: true, toml: "backend", verbs: vStore, kind: kindList, arg: "URL|NAME", def: "embedded SQLite",
		help: "where leases live; repeatable: all of them must be held, in that order",
		at:   func(c *Config) any { return &c.backendNames }},
	{name: "record", env: true, toml: "record", verbs: vStore, arg: "URL|NAME", def: "the backend", off: true,
		help: "where run records, attempts and done-marks are kept instead",
		at:   func(c *Config) any { return &c.recordName }},
	{name: "ttl", env: true, toml: "ttl", verbs: vLease | vRenew, kind: kindLength, arg: "D|auto", def: "60s",
		help: "length of the lease, from the last heartbeat; how long a crashed host blocks the key; auto: by this key's history",
		at:   func(c *Config) any { return &c.TTL }},
	{name: "heartbeat", env: true, toml: "heartbeat", verbs: vLease, kind: kindDuration, arg: "D", def: "TTL/3",
		help: "renewal interval; at most TTL/2",
		at:   func(c *Config) any { return &c.Heartbeat }},
	{name: "wait", env: true, toml: "wait", verbs: vLease, kind: kindWait, arg: "D|forever", def: "0",
		help: "how long to wait for a held lease; 0 skips at once",
		at:   func(c *Config) any { return &c.Wait }},
	{name: "hold-at-least", env: true, toml: "hold_at_least", verbs: vLease, kind: kindSpan, arg: "D", def: "0",
		help: "keep the lease this long after the start, even if the job ends sooner",
		at:   func(c *Config) any { return &c.HoldAtLeast }},
	{name: "timeout", env: true, toml: "timeout", verbs: vRun, kind: kindDuration, arg: "D", def: "none",
		help: "longest run of COMMAND; then TERM, and KILL after the grace",
		at:   func(c *Config) any { return &c.Timeout }},
	{name: "grace", env: true, toml: "grace", verbs: vRun, kind: kindDuration, arg: "D", def: "10s, at most TTL/6",
		help: "time between TERM and KILL; grace + heartbeat must be under the TTL, and under the shorter one that a store may grant",
		at:   func(c *Config) any { return &c.Grace }},
	{name: "holder", env: true, toml: "holder", verbs: vLease | vUnlock | vPause, check: backends.CheckHolder, arg: "NAME", def: "$HOSTNAME, else the host's name",
		help: "who status and history say it is; never decides ownership",
		at:   func(c *Config) any { return &c.Holder }},
	{name: "schedule", env: true, toml: "schedule", verbs: vLease, arg: "CRON", def: "none",
		help: "at most one successful run for each tick of this cron expression, across all hosts",
		at:   func(c *Config) any { return &c.Schedule }},
	{name: "run-id", env: true, toml: "run_id", verbs: vLease, check: backends.CheckRunID, arg: "ID", def: "none", outer: true,
		help: "at most one successful run with this id, across all hosts",
		at:   func(c *Config) any { return &c.RunID }},
	{name: "slots", env: true, toml: "slots", verbs: vLease, kind: kindCount, arg: "N", def: "1", min: 1,
		help: "up to N holders at once",
		at:   func(c *Config) any { return &c.Slots }},
	{name: "descendants", env: true, toml: "descendants", verbs: vRun, kind: kindChoice, choices: "leave wait kill", arg: "leave|wait|kill", def: "leave",
		help: "what happens to processes that outlive COMMAND",
		at:   func(c *Config) any { return &c.Descendants }},
	{name: "on-lost", env: true, toml: "on_lost", verbs: vRun, kind: kindChoice, choices: "kill continue", arg: "kill|continue", def: "kill",
		help: "what happens to COMMAND when the lease is lost",
		at:   func(c *Config) any { return &c.OnLost }},
	{name: "on-unavailable", env: true, toml: "on_unavailable", verbs: vRun | vStatus | vHistory | vUnlock, kind: kindChoice, choices: "fail skip run fallback", arg: "fail|skip|run|fallback", def: "fail",
		help: "what happens when the backend cannot answer; fallback: the lease of --fallback is taken instead, and shown beside the backend's",
		at:   func(c *Config) any { return &c.OnUnavail }},
	{name: "fallback", env: true, toml: "fallback", verbs: vRun | vStatus | vHistory | vUnlock, arg: "URL|NAME", def: "embedded SQLite",
		help: "whose lease is taken with --on-unavailable fallback",
		at:   func(c *Config) any { return &c.fallbackName }},
	{name: "backend-timeout", env: true, toml: "backend_timeout", verbs: vStore, kind: kindDuration, arg: "D", def: "5s",
		help: "bound on each exchange with the backend",
		at:   func(c *Config) any { return &c.BackendTimeout }},
	{name: "exit-code", env: true, toml: "exit_code", verbs: vStore, kind: kindPairs, arg: "NAME=N",
		help: "exit with N instead of the code that has this name; repeatable",
		at:   func(c *Config) any { return &c.ExitCodes }},
	{name: "result-file", env: true, toml: "result_file", verbs: vRun, arg: "FILE", def: "none", outer: true, off: true,
		help: "write one JSON object about this run, atomically",
		at:   func(c *Config) any { return &c.ResultFile }},
	{name: "metrics-file", env: true, toml: "metrics_file", verbs: vRun, arg: "FILE", def: "none", outer: true, off: true,
		help: "add this run to the sums in FILE, for node_exporter's textfile collector",
		at:   func(c *Config) any { return &c.MetricsFile }},
	{name: "pushgateway", env: true, toml: "pushgateway", verbs: vRun, check: checkHTTP, arg: "URL", def: "none", outer: true, off: true,
		help: "send the key's sums on this host to this Prometheus Pushgateway",
		at:   func(c *Config) any { return &c.Pushgateway }},
	{name: "hook", env: true, toml: "hook", verbs: vRun, kind: kindHooks, arg: "EVENT=COMMAND", def: "none", outer: true, off: true,
		help: "have sh -c run COMMAND when this happens: started, succeeded, failed, skipped, done, unavailable, fallback, lost, timeout; repeatable",
		at:   func(c *Config) any { return &c.Hooks }},
	{name: "ping", env: true, toml: "ping", verbs: vRun, check: checkHTTP, arg: "URL", def: "none", outer: true, off: true,
		help: "tell start and end to a service that speaks Healthchecks' protocol",
		at:   func(c *Config) any { return &c.Ping }},
	{name: "hook-timeout", env: true, toml: "hook_timeout", verbs: vRun, kind: kindDuration, arg: "D", def: "10s",
		help: "bound on each hook, ping and push, and on all of them together at the end",
		at:   func(c *Config) any { return &c.HookTimeout }},
	{name: "token", env: true, verbs: vUnlock | vRenew | vRelease, kind: kindCount, arg: "N", min: 1, outer: true,
		help: "fencing token of the lease that is meant",
		at:   func(c *Config) any { return &c.Token }},
	{name: "force", verbs: vUnlock, kind: kindSwitch,
		help: "break whichever lease is there",
		at:   func(c *Config) any { return &c.Force }},
	{name: "while-pid", verbs: vAcquire, kind: kindCount, arg: "PID", min: 1, def: "none: the lease ends after its TTL",
		help: "renew in the background for as long as this process lives",
		at:   func(c *Config) any { return &c.WhilePID }},
	{name: "for", env: true, verbs: vPause, kind: kindDuration, arg: "D", def: "until resumed",
		help: "how long",
		at:   func(c *Config) any { return &c.For }},
	{name: "reason", env: true, verbs: vPause, check: backends.CheckReason, arg: "TEXT", outer: true,
		help: "why, for those who meet the pause",
		at:   func(c *Config) any { return &c.Reason }},
	{name: "json", env: true, toml: "json", verbs: vStatus | vHistory | vDoctor, kind: kindSwitch,
		help: "one JSON object a line",
		at:   func(c *Config) any { return &c.JSON }},
	{name: "limit", short: "n", env: true, toml: "limit", verbs: vHistory, kind: kindCount, arg: "N", def: "20; with --json all", min: 1,
		help: "at most N runs",
		at:   func(c *Config) any { return &c.Limit }},
	{name: "since", env: true, verbs: vHistory, check: checkSince, arg: "D|TIME", def: "everything that is kept",
		help: "what ended at most D ago, or at TIME (2026-11-30, \"2026-11-30 06:15\", RFC 3339) or later",
		at:   func(c *Config) any { return &c.Since }},
	{name: "outcome", env: true, verbs: vHistory, kind: kindList, check: checkOutcomes, arg: "LIST", def: "all", outer: true,
		help: "what ended so: succeeded, failed, skipped, done, lost, timeout, unavailable, not-started, unlocked, crashed; or several, with commas; repeatable",
		at:   func(c *Config) any { return &c.Outcomes }},
	{name: "follow", short: "f", env: true, verbs: vHistory, kind: kindSwitch,
		help: "oldest first, and go on with what is written from now on",
		at:   func(c *Config) any { return &c.Follow }},
	{name: "watch", short: "w", env: true, verbs: vStatus, kind: kindSwitch,
		help: "show it again and again",
		at:   func(c *Config) any { return &c.Watch }},
	{name: "interval", env: true, verbs: vStatus | vHistory, kind: kindDuration, arg: "D", def: "1s",
		help: "how often --watch and --follow ask",
		at:   func(c *Config) any { return &c.Interval }},
	{name: "print", verbs: vInit, kind: kindSwitch,
		help: "show what would be created, and touch nothing",
		at:   func(c *Config) any { return &c.Print }},
	{name: "listen", env: true, toml: "listen", verbs: vMetrics, check: checkListen, arg: "ADDR", def: "none: print once",
		help: "serve the metrics at http://ADDR/metrics until TERM or INT",
		at:   func(c *Config) any { return &c.Listen }},
	{name: "config", env: true, verbs: vAny, arg: "FILE",
		help: "TOML file, read before those of the user and the system",
		at:   func(c *Config) any { return &c.ConfigFile }},
	{name: "quiet", short: "q", env: true, toml: "quiet", verbs: vAny, kind: kindSwitch,
		help: "errors only",
		at:   func(c *Config) any { return &c.Quiet }},
	{name: "verbose", short: "v", env: true, toml: "verbose", verbs: vAny, kind: kindSwitch,
		help: "also tell what went well",
		at:   func(c *Config) any { return &c.Verbose }},
	{name: "log-format", env: true, toml: "log_format", verbs: vAny, kind: kindChoice, choices: "text json", arg: "text|json", def: "text",
		help: "form of the messages on stderr",
		at:   func(c *Config) any { return &c.LogFormat }},
	{env: true, toml: "history_keep", verbs: vStore, kind: kindCount, arg: "N", def: "1000", min: 1,
		help: "finished runs kept of each key, and apart from them as many refused ones",
		at:   func(c *Config) any { return &c.HistoryKeep }},
	{env: true, toml: "history_days", verbs: vStore, kind: kindCount, arg: "N", def: "90", min: 1,
		help: "days that run records are kept",
		at:   func(c *Config) any { return &c.historyDays }},
	{env: true, toml: "done_days", verbs: vStore, kind: kindCount, arg: "N", def: "400", min: 1,
		help: "days that a successful run id is remembered",
		at:   func(c *Config) any { return &c.doneDays }},
	{name: "help", short: "h", verbs: vAny, kind: kindSwitch,
		help: "tell what this verb does",
		at:   func(c *Config) any { return &c.help }},
})

// examinable lets doctor take the options of a run, so that a job's settings can be examined as they stand in a crontab.
func examinable(all []option) []option {
	for i := range all {
		if all[i].verbs&vRun != 0 {
			all[i].verbs |= vDoctor
		}
	}
	return all
}

// variable is the option's environment variable, or "".
func (o *option) variable() string {
	if !o.env {
		return ""
	}
	return "LOCKRUN_" + strings.ToUpper(strings.ReplaceAll(o.id(), "-", "_"))
}

// id names the option within lockrun: the flag, or the configuration key where there is no flag.
func (o *option) id() string {
	if o.name != "" {
		return o.name
	}
	return o.toml
}

// flag is how messages call the option.
func (o *option) flag() string {
	if o.name != "" {
		return "--" + o.name
	}
	return o.toml
}

// findOption returns the option of this verb that has this flag, long or short, or nil.
func findOption(v verb, flag string) *option {
	for i := range options {
		o := &options[i]
		if o.verbs&v != 0 && flag != "" && (o.name == flag || o.short == flag) {
			return o
		}
	}
	return nil
}

// tomlOption returns the option with this configuration key, or nil.
func tomlOption(key string) *option {
	for i := range options {
		if options[i].toml == key && key != "" {
			return &options[i]
		}
	}
	return nil
}

// Defaults and bounds of the settings.
const (
	defaultTTL            = 60 * time.Second
	defaultGrace          = 10 * time.Second
	defaultBackendTimeout = 5 * time.Second
	defaultHookTimeout    = 10 * time.Second
	defaultLimit          = 20
	defaultInterval       = time.Second

	// minTTL is the shortest lease that can be kept. A renewal is one durable write of the store and one wake-up of a
	// process; on a busy host these take tens of milliseconds, and a lease shorter than a few of them would be lost to
	// the scheduler, not to a rival.
	minTTL = 100 * time.Millisecond

	// maxDuration keeps sums of a few durations and an instant far from overflow. Ten years is longer than any lease.
	maxDuration = 10 * 365 * 24 * time.Hour

	// ttlFromHistory stands for --ttl auto until validate has seen it.
	ttlFromHistory = -1 * time.Nanosecond

	maxCount = 1 << 30 // of slots, records, days: far above use, far below overflow
)
