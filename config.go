package main

import "time"

// Config is everything an invocation was asked for, after flag, environment, configuration file and default have been
// settled and checked. Durations are positive unless the comment says otherwise.
type Config struct {
	Verb string // run, status, history, unlock, acquire, renew, release, init, doctor, pause, resume, ...

	Key      string   // run, acquire, renew, release: the key
	Keys     []string // status, history, unlock, pause, resume: the keys named as arguments
	Command  []string // COMMAND and its arguments, never parsed
	Backends []Store  // where leases live; all of them have to be held, in this order. Never empty
	Record   *Store   // where run records are kept instead; nil: in the first of Backends
	Fallback *Store   // whose lease is taken where the backend cannot answer; nil: none

	TTL         time.Duration // length of the lease, from the last heartbeat; renew: 0 is the length it was granted with
	AutoTTL     bool          // TTL, Heartbeat and Grace are settled by the key's history, and Heartbeat and Grace 0 until then
	Heartbeat   time.Duration // renewal interval; default TTL/3, at most TTL/2
	Wait        time.Duration // how long to wait for a held lease; 0 skips at once, WaitForever waits without end
	HoldAtLeast time.Duration // keep the lease this long after the start; 0: no longer than the job
	Timeout     time.Duration // longest run of COMMAND; 0: none
	Grace       time.Duration // between TERM and KILL; default 10s or TTL/6, whichever is less
	graceGiven  bool          // Grace is not the default, and so never shortened

	Holder      string // who status and history say it is
	Schedule    string // cron expression that names the run
	RunID       string // name of the run; "" without
	Slots       int    // holders at once, at least 1
	Descendants string // leave, wait, kill
	OnLost      string // kill, continue
	OnUnavail   string // fail, skip, run, fallback

	BackendTimeout time.Duration  // bound on each exchange with the backend
	ExitCodes      map[string]int // by the names of exitNames
	ResultFile     string         // "" for none

	MetricsFile string              // "" for none
	Pushgateway string              // URL; "" for none; never printed
	Hooks       map[string][]string // COMMANDs by event; never printed
	Ping        string              // URL; "" for none; never printed
	HookTimeout time.Duration       // bound on each observer, and on all of them together at the end

	Token    int64         // unlock, renew, release: positive; unlock --force: 0
	Force    bool          // unlock whatever is there
	WhilePID int           // acquire: the background heartbeat lives as long as this process; 0: no heartbeat
	For      time.Duration // pause: how long; 0 until resumed
	Reason   string        // pause: why

	JSON  bool // status, history, doctor
	Limit int  // history: at most this many; 0: all
	Print bool // init

	Since    string        // history: a duration or a time, as checkSince takes it; "" for everything
	Outcomes []string      // history: lists of outcomes, with commas; nil for all
	Follow   bool          // history
	Watch    bool          // status
	Interval time.Duration // status --watch, history --follow: how often the store is asked

	conflicts []problem // doctor: what a run with these settings would be refused for

	Listen string // metrics: the address to serve them on; "" prints them once

	ConfigFile string // --config
	Quiet      bool
	Verbose    bool
	LogFormat  string // text, json

	HistoryKeep int           // finished runs kept of each key
	HistoryAge  time.Duration // history_days
	DoneAge     time.Duration // done_days

	Warnings []string // what is not wrong enough to be refused; without secrets

	backendNames             []string // as configured: URLs or names
	recordName, fallbackName string
	warn                     func(string) // tells a warning that comes up later; see tell

	historyDays, doneDays int  // as configured; HistoryAge and DoneAge are made from them
	help                  bool // --help
	named                 bool // Holder was asked for
}

// WaitForever is Config.Wait for --wait forever.
const WaitForever = time.Duration(1<<63 - 1)

// Store is a backend as it was configured.
type Store struct {
	URL      string // "" is the embedded default
	Name     string // the name it had in the configuration file; "" for a bare URL
	Password string // of [backends.NAME], from password_file; never printed
	From     string // where URL was written: "--backend", "LOCKRUN_RECORD", "/etc/lockrun/config.toml:3"; "" without
}

// tell warns of something that nobody is asked for. It may be called from any goroutine.
func (c *Config) tell(text string) {
	if c.warn != nil {
		c.warn(text)
	}
}
