//go:build linux

// How the guard comes into being: as a process of its own, by vfork and exec, and as a rule in two steps. A job that is
// over within milliseconds needs no second program executed beside it, yet it needs somebody who outlives lockrun. So at
// first the guard is a process that shares lockrun's memory (clone), which costs a tenth of an execution, and sleeps. When
// lockrun dies, or else after some milliseconds, it executes the program and is the guard that guard.c describes, with
// memory of its own.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "native.h"

enum { MOST_FDS = 16 };

struct start {
	const char *marker, *name;
	const int *fds;
	int n, patience;
	volatile int err; // why there is no guard
};

// place makes fds[i] descriptor i and closes the rest. They are moved out of the way first, since any of them may stand
// where another belongs.
static int place(const int *fds, int n) {
	int moved[n];
	for (int i = 0; i < n; i++)
		if ((moved[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, n)) < 0)
			return -1;
	for (int i = 0; i < n; i++)
		if (dup2(moved[i], i) < 0)
			return -1;
#ifdef SYS_close_range
	syscall(SYS_close_range, n, ~0U, 0); // the guard itself closes what an older kernel leaves
#endif
	return 0;
}

// watch returns when lockrun is gone, or the patience is over. What lockrun has to say stays in the pipe.
//
// The system call is made directly, since the C library would note in the thread's memory, which is lockrun's, that it may
// be cancelled.
static void watch(int pipe, int patience) {
	struct pollfd p = {pipe, 0, 0}; // its end is told unasked
#ifdef SYS_poll
	syscall(SYS_poll, &p, 1, patience);
#else
	struct timespec t = {patience / 1000, patience % 1000 * 1000000L};
	syscall(SYS_ppoll, &p, 1, &t, NULL, 0);
#endif
}

// become runs in a process that shares our memory, with every signal blocked, and does not return. Only a failure changes
// errno, and is the last thing it does.
static int become(void *arg) {
	struct start *s = arg;
	char *argv[] = {(char *)s->name, NULL}, *envp[] = {(char *)s->marker, NULL};
	const char *other = (const char *)getauxval(AT_EXECFN); // where /proc is not mounted
	if (setpgid(0, 0) == 0 && place(s->fds, s->n) == 0) {
		lockrun_spread_self();
		if (s->patience) {
			prctl(PR_SET_NAME, s->name); // no target for pkill lockrun
			watch(0, s->patience);
		}
		execve("/proc/self/exe", argv, envp);
		if (other)
			execve(other, argv, envp);
	}
	s->err = errno;
	_exit(127);
}

static pid_t start_now(struct start *s) {
	pid_t pid = vfork();
	if (!pid)
		become(s);
	return pid;
}

// start_late needs memory that stays as it is, and has it for one guard: that one replaces another is not worth more.
static pid_t start_late(struct start *s) {
	static _Alignas(64) char stack[32 << 10];
	static char marker[512], name[16];
	static int fds[MOST_FDS], taken;
	static struct start late;
	if (s->n > MOST_FDS || strlen(s->marker) >= sizeof marker || strlen(s->name) >= sizeof name ||
	    access("/proc/self/exe", X_OK) || __atomic_exchange_n(&taken, 1, __ATOMIC_RELAXED)) {
		s->patience = 0; // a failure has to be known at once
		return start_now(s);
	}
	late = (struct start){strcpy(marker, s->marker), strcpy(name, s->name), memcpy(fds, s->fds, s->n * sizeof *fds), s->n,
			      s->patience, 0};
	return clone(become, stack + sizeof stack, CLONE_VM | SIGCHLD, &late);
}

int lockrun_spawn_guard(const char *marker, const char *name, const int *fds, int n, int patience) {
	struct start s = {marker, name, fds, n, patience, 0};
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); // it runs with the signals blocked as they are now, which survives the exec
	pid_t pid = patience ? start_late(&s) : start_now(&s);
	if (pid < 0)
		s.err = errno;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (pid > 0 && s.err)
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	return s.err ? -s.err : pid;
}
