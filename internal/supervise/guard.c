//go:build linux

// The guard: a process beside COMMAND that outlives lockrun by a moment. It reads what lockrun tells it from a pipe that
// only lockrun can write to. When the pipe ends, lockrun has died, and the whole tree has to die with it; when the
// deadline passes, lockrun was frozen, and the tree has to die all the same. The protocol is described in guard.go.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "native.h"
#include "proctree.h"

struct message {
	int64_t kind, value;
};

struct guard {
	int tty;             // descriptor of the terminal, or -1
	int timer;           // counts suspend, or -1 on a system that has none
	int64_t deadline_ns; // on the boot clock; negative: none
	int64_t done_ns;     // the deadline that has been seen to
	int64_t census_ns;   // when to take the next census
	int64_t pause_ns;    // between the last and the next
	struct tree tree;
};

static int64_t now_ns(void) {
	struct timespec ts;
	if (clock_gettime(CLOCK_BOOTTIME, &ts))
		clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static void pause_ms(int ms) { poll(NULL, 0, ms); }

// parse reads "pid:child:since:deadline:pgrp:tty:keep:owner", as guard.go writes it.
static int parse(struct guard *g, const char *marker, int *nfds) {
	int has_tty, keep, used = 0;
	long long since, deadline;
	if (sscanf(marker, "%d:%d:%lld:%lld:%d:%d:%d:%n", &g->tree.lockrun, &g->tree.child, &since, &deadline, &g->tree.own_pgrp,
		   &has_tty, &keep, &used) != 7 || !used)
		return -1;
	g->tree.since = since;
	g->tree.command_lives = g->tree.child > 0;
	g->tree.lockrun_lives = 1;
	g->tree.blind = !tree_is_shown();
	g->deadline_ns = deadline;
	g->done_ns = -1;
	g->tty = has_tty ? 1 : -1;
	snprintf(g->tree.mark, sizeof g->tree.mark, "LOCKRUN_OWNER=%s", marker + used);
	g->tree.mark_len = marker[used] ? strlen(g->tree.mark) : 0;
	*nfds = 1 + has_tty + keep;
	return 0;
}

// detach gives up whatever a process that nobody knows of must not hold on to.
static void detach(int nfds) {
	// Found by neither pkill lockrun nor by one that looks for COMMAND.
	prctl(PR_SET_NAME, GUARD_NAME);
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	// It sleeps until it has to be quick. Where that may not be asked for, it is as quick as its host lets it be.
	setpriority(PRIO_PROCESS, 0, -20);
	if (chdir("/")) // a working directory keeps its file system from being unmounted
		errno = 0;
#ifdef SYS_close_range
	if (!syscall(SYS_close_range, nfds, ~0U, 0))
		return;
#endif
	for (long fd = sysconf(_SC_OPEN_MAX) - 1; fd >= nfds; fd--)
		close(fd);
}

// census takes one when it is time, and returns the milliseconds to the next: soon after the start, when a job builds up
// its tree (`su - user -c job` makes a process that nothing but its parent ties to the job), and then more and more seldom.
static int census(struct guard *g) {
	int64_t now = now_ns();
	if (now >= g->census_ns) {
		tree_census(&g->tree);
		g->pause_ns = g->pause_ns < 10000000 ? 10000000 : g->pause_ns < INT64_C(8000000000) ? 2 * g->pause_ns : INT64_C(15000000000);
		g->census_ns = now + g->pause_ns;
	}
	return (g->census_ns - now) / 1000000 + 1;
}

// listen waits for news, at most until the deadline. It returns -1 when lockrun is gone.
static int listen_to(struct guard *g, int wait) {
	// The timer stays ready once it has run out. It is looked at only while it is set for a deadline that is to come.
	struct pollfd p[2] = {{0, POLLIN, 0}, {-1, POLLIN, 0}};
	int timeout = wait ? census(g) : 0;
	if (wait && g->deadline_ns >= 0 && g->deadline_ns != g->done_ns) {
		// One that has passed is looked for in the pipe first: lockrun may have moved it while this process waited for the
		// processor, or was being executed.
		int64_t left = g->deadline_ns - now_ns();
		struct itimerspec at = {{0, 0}, {g->deadline_ns / 1000000000, g->deadline_ns % 1000000000}};
		if (left <= 0)
			timeout = 0;
		else if (g->timer < 0 || timerfd_settime(g->timer, TFD_TIMER_ABSTIME, &at, NULL))
			timeout = left / 1000000 < timeout ? left / 1000000 + 1 : timeout < 1000 ? timeout : 1000; // stops in suspend
		else
			p[1].fd = g->timer;
	}
	if (poll(p, 2, timeout) <= 0 || !p[0].revents)
		return 0;

	struct message m[64];
	ssize_t n = read(0, m, sizeof m);
	if (n == 0)
		return -1;
	for (int i = 0; i < n / (ssize_t)sizeof *m; i++) {
		switch (m[i].kind) {
		case MSG_DEADLINE:
			g->deadline_ns = m[i].value;
			break;
		case MSG_NEVER:
			g->deadline_ns = -1;
			break;
		case MSG_STAND_DOWN:
			_exit(0);
		case MSG_COMMAND_ENDED:
			g->tree.command_lives = 0;
			break;
		case MSG_COMMAND_STARTED:
			g->tree.child = m[i].value;
			g->tree.command_lives = 1;
		}
	}
	return 0;
}

// await_orphanhood waits until lockrun's exit is complete: the pipe ends somewhat before. A group that is stopped when its
// last tie to the session dies gets HUP and CONT from the kernel, and would run apart while it is being counted.
static void await_orphanhood(struct guard *g) {
	for (int i = 0; i < 200 && getppid() == g->tree.lockrun; i++)
		usleep(i < 100 ? 50 : 1000);
}

// give_terminal_back undoes what lockrun cannot undo any more. A COMMAND that is a shell has given the terminal to a group of
// its own making, which is known while those in it are found, and is nobody's once they are gone.
static void give_terminal_back(struct guard *g) {
	int fg;
	if (g->tty < 0 || ioctl(g->tty, TIOCGPGRP, &fg))
		return;
	if (fg == g->tree.child || tree_had_group(fg) || (kill(-fg, 0) && errno == ESRCH))
		ioctl(g->tty, TIOCSPGRP, &g->tree.own_pgrp);
}

// late kills because the deadline has passed, until two looks in a row find nothing or lockrun has news.
static int late(struct guard *g) {
	int64_t deadline = g->deadline_ns;
	tree_strike(&g->tree);
	for (int quiet = 0, ms = 1; quiet < 2; ms = ms < 50 ? ms * 2 : 100) {
		quiet = tree_kill(&g->tree) ? 0 : quiet + 1;
		pause_ms(ms);
		if (listen_to(g, 0) < 0)
			return -1;
		if (g->deadline_ns < 0 || g->deadline_ns > now_ns())
			return 0;
	}
	g->done_ns = deadline;
	return 0;
}

void lockrun_guard(const char *marker) {
	static struct guard g;
	int nfds;
	if (parse(&g, marker, &nfds))
		_exit(2);
	detach(nfds);
	g.timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);

	while (listen_to(&g, 1) == 0)
		if (g.deadline_ns >= 0 && g.deadline_ns != g.done_ns && now_ns() >= g.deadline_ns && late(&g) < 0)
			break;

	await_orphanhood(&g);
	g.tree.lockrun_lives = 0;
	give_terminal_back(&g);
	tree_strike(&g.tree);
	give_terminal_back(&g);
	// What cannot be killed keeps the guard, and with it the proof that the holder is not dead yet.
	for (int quiet = 0, ms = 1; quiet < 2; ms = ms < 500 ? ms * 2 : 1000) {
		quiet = tree_kill(&g.tree) ? 0 : quiet + 1;
		give_terminal_back(&g);
		if (quiet < 2)
			pause_ms(quiet ? 1 : ms);
	}
	_exit(0);
}
