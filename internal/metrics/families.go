package metrics

// family is one metric: its name, what it means, and how a key's value gets into the text and back.
type family struct {
	name, typ, help string
	observed        bool // only runs themselves know it: see Set.Observed

	hist  func(*Sums) *histogram                   // histograms
	label string                                   // a label beside key; "" for none
	each  func(*Sums, func(lv string, v float64))  // what to write; nothing for a key without it
	set   func(k *Sums, lv string, v float64) bool // what was read; false: the label's value is not ours
}

// families is the one definition of lockrun's metrics. Their order is that of the text.
var families = [...]family{
	{name: "lockrun_runs_total", typ: "counter", label: "outcome",
		help: "Runs by outcome, refused ones included.",
		each: func(k *Sums, f func(string, float64)) {
			for i, o := range Outcomes {
				f(o, float64(k.runs[i]))
			}
		},
		set: func(k *Sums, lv string, v float64) bool {
			for i, o := range Outcomes {
				if o == lv {
					k.runs[i] = uint64(v)
					return true
				}
			}
			return false
		}},
	{name: "lockrun_acquire_duration_seconds", typ: "histogram", observed: true,
		help: "Time from asking for the lease to the answer, without waiting for a held one.",
		hist: func(k *Sums) *histogram { return &k.acquire }},
	{name: "lockrun_wait_duration_seconds", typ: "histogram",
		help: "Time that runs waited for a held lease.",
		hist: func(k *Sums) *histogram { return &k.wait }},
	{name: "lockrun_hold_duration_seconds", typ: "histogram",
		help: "Time that leases were held, from the grant to the end of the run.",
		hist: func(k *Sums) *histogram { return &k.hold }},
	{name: "lockrun_renew_failures_total", typ: "counter", observed: true,
		help: "Renewals that were not answered, or refused.",
		each: counter(func(k *Sums) *uint64 { return &k.renewFailures }), set: setCounter(func(k *Sums) *uint64 { return &k.renewFailures })},
	{name: "lockrun_release_failures_total", typ: "counter", observed: true,
		help: "Releases that were not answered, or found the lease gone.",
		each: counter(func(k *Sums) *uint64 { return &k.releaseFailures }), set: setCounter(func(k *Sums) *uint64 { return &k.releaseFailures })},
	{name: "lockrun_takeovers_total", typ: "counter",
		help: "Leases taken after the one before had ended without a release, as a crash leaves it.",
		each: counter(func(k *Sums) *uint64 { return &k.takeovers }), set: setCounter(func(k *Sums) *uint64 { return &k.takeovers })},
	{name: "lockrun_fallbacks_total", typ: "counter", observed: true,
		help: "Runs under the lease of the fallback store, because the backend could not answer.",
		each: counter(func(k *Sums) *uint64 { return &k.fallbacks }), set: setCounter(func(k *Sums) *uint64 { return &k.fallbacks })},
	{name: "lockrun_last_success_timestamp_seconds", typ: "gauge",
		help: "When the last successful run ended, by the clock of the backend.",
		each: gauge(func(k *Sums) (float64, bool) { return k.lastSuccess, k.lastSuccess > 0 }),
		set:  func(k *Sums, _ string, v float64) bool { k.lastSuccess = v; return true }},
	{name: "lockrun_last_exit_code", typ: "gauge",
		help: "Exit code of the last COMMAND that ended.",
		each: gauge(func(k *Sums) (float64, bool) { return float64(k.lastExit), k.exited }),
		set:  func(k *Sums, _ string, v float64) bool { k.lastExit, k.exited = int(v), true; return true }},
	{name: "lockrun_held", typ: "gauge",
		help: "Slots of the key that are held now.",
		each: gauge(func(k *Sums) (float64, bool) { return float64(k.held), k.leased }), set: refuse},
	{name: "lockrun_expires_timestamp_seconds", typ: "gauge",
		help: "When the first of the held leases ends unless it is renewed, by the clock of the backend.",
		each: gauge(func(k *Sums) (float64, bool) { return k.expires, k.leased && k.expires > 0 }), set: refuse},
	{name: "lockrun_waiters", typ: "gauge",
		help: "Runs that wait for the lease now.",
		each: gauge(func(k *Sums) (float64, bool) { return float64(k.waiters), k.leased && k.countsWaiters }), set: refuse},
}

func counter(at func(*Sums) *uint64) func(*Sums, func(string, float64)) {
	return func(k *Sums, f func(string, float64)) { f("", float64(*at(k))) }
}

func setCounter(at func(*Sums) *uint64) func(*Sums, string, float64) bool {
	return func(k *Sums, _ string, v float64) bool { *at(k) = uint64(v); return true }
}

func gauge(value func(*Sums) (float64, bool)) func(*Sums, func(string, float64)) {
	return func(k *Sums, f func(string, float64)) {
		if v, ok := value(k); ok {
			f("", v)
		}
	}
}

// refuse is for what is true at one moment only, and so has no place in a file of sums.
func refuse(*Sums, string, float64) bool { return false }

// Names are the names of all metrics, for tests of what is written about them elsewhere.
func Names() []string {
	var names []string
	for i := range families {
		names = append(names, families[i].name)
	}
	return names
}
