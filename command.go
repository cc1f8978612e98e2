package main

import (
	"slices"
	"strings"
)

// command is one verb as the command line knows it.
type command struct {
	name    string
	bit     verb
	needs   string // the options that it cannot do without, as help names them
	args    string // how help names the arguments
	help    string // one line
	long    string // what else help tells
	minArgs int
	maxArgs int // -1: any number
	do      func(*call) int

	guessed string // run: the word that was taken for COMMAND without -- before it; it may have been meant as a verb
}

// usage is how the verb is written, without the options that it can do without.
func (c *command) usage(optional string) string {
	words := []string{"lockrun", c.name, c.needs, optional, c.args}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

func (c *command) is(v verb) bool { return c.bit&v != 0 }

// call is one invocation of a verb.
type call struct {
	cfg  *Config
	io   IO
	ui   *ui
	open opener
}

// commands is the table of verbs, in the order in which help tells them. It is a function because help reads it too.
func commands() []*command {
	return []*command{
		{name: "run", bit: vRun, needs: "--key KEY", args: "-- COMMAND [ARG...]", maxArgs: -1, do: doRun,
			help: "run COMMAND under the lease of KEY; the verb may be left out",
			long: "COMMAND is executed directly, without a shell, and nothing after its first word is parsed. -- may be left out where COMMAND\n" +
				"does not start with a dash and is not called like a verb of lockrun."},
		{name: "status", bit: vStatus, args: "[KEY...]", maxArgs: -1, do: doStatus,
			help: "who holds what, since when, and until when",
			long: "Without KEY all keys that the store knows. With KEY it exits 0 where all of them are held, else 1."},
		{name: "history", bit: vHistory, args: "[KEY]", maxArgs: 1, do: doHistory,
			help: "finished and refused runs, newest first"},
		{name: "unlock", bit: vUnlock, args: "KEY --token N|--force", minArgs: 1, maxArgs: 1, do: doUnlock,
			help: "break the lease that has this token, or with --force whichever is there",
			long: "Its holder stops COMMAND at the next heartbeat, at the latest when its lease would have run out; another may start before that.\n" +
				"Exits 1 where there was nothing to break."},
		{name: "acquire", bit: vAcquire, needs: "--key KEY", do: doAcquire,
			help: "take the lease for a shell script, and print its token",
			long: "With --while-pid $$ a background process renews the lease for as long as the script lives. Without it the lease ends after\n" +
				"its TTL unless the script renews it. lockrun release --key KEY --token TOKEN ends it.\n" +
				"Nobody stops the script when the lease is lost: have it ask by lockrun renew, which then exits 79, before what must not\n" +
				"happen twice. Exits as a run does that does not come to COMMAND: 75 (held, or paused), 76 (done), 69 (not known)."},
		{name: "renew", bit: vRenew, needs: "--key KEY --token N", do: doRenew,
			help: "make the lease of this token last its TTL from now on",
			long: "Exits 79 where the lease is not (any longer) that token's."},
		{name: "release", bit: vRelease, needs: "--key KEY --token N", do: doRelease,
			help: "give the lease of this token back",
			long: "Exits 79 where the lease is not (any longer) that token's."},
		{name: "init", bit: vInit, do: doInit,
			help: "create once what the backend needs"},
		{name: "doctor", bit: vDoctor, do: doDoctor,
			help: "examine the backend and this host; each finding with a cause and a remedy",
			long: "Exits 1 where a check failed. Advice is not a failure."},
		{name: "pause", bit: vPause, args: "KEY", minArgs: 1, maxArgs: 1, do: doPause,
			help: "have runs of KEY skipped from now on; one that runs is not touched"},
		{name: "resume", bit: vResume, args: "KEY", minArgs: 1, maxArgs: 1, do: doResume,
			help: "end a pause"},
		{name: "metrics", bit: vMetrics, do: doMetrics,
			help: "Prometheus text about every key in the backend, or with --listen a server of it",
			long: "Counters are made from the history, and so know what the store still keeps of it. With --listen, what was counted stays\n" +
				"counted when the store forgets it, until that process ends."},
		{name: "version", bit: vVersion, do: doVersion,
			help: "tell the version"},
		{name: "help", bit: vHelp, args: "[VERB]", maxArgs: 1, do: doHelp,
			help: "tell what lockrun, or one of its verbs, does; help man prints the manual page"},
		{name: "completion", bit: vCompletion, args: "bash|zsh|fish", minArgs: 1, maxArgs: 1, do: doCompletion,
			help: "print a completion script for this shell"},
	}
}

// findCommand returns the verb of this name, or nil.
func findCommand(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return c
		}
	}
	return nil
}
