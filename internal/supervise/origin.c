//go:build linux

// The state that lockrun's parent left to it, recorded before the Go runtime replaces most of it: its handlers cover up
// which signals were ignored (all but HUP and INT), and package os raises the soft limit on descriptors.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native.h"

extern char **environ;

static struct {
	uint64_t ignored;
	sigset_t mask;
	struct rlimit nofile;
	int has_nofile;
	int closed; // bit n: descriptor n, of 0 to 2, was not open
} origin;

static const char guard_marker[] = "LOCKRUN_GUARD=";

// disposition asks the kernel, past the C library, which hides the two or three signals it has for itself: under GNU make
// they are ignored. The kernel's structure begins with the handler, except on MIPS.
static int disposition(int sig, void (*set)(int), void (**get)(int)) {
#ifdef __mips__
	struct sigaction sa = {.sa_handler = set}, old;
	int err = sigaction(sig, get ? NULL : &sa, &old);
	if (get)
		*get = old.sa_handler;
	return err;
#else
	void (*sa[16])(int) = {set}, (*old[16])(int);
	int err = syscall(SYS_rt_sigaction, sig, get ? NULL : sa, old, 8);
	if (get)
		*get = old[0];
	return err;
#endif
}

// A constructor runs before the Go runtime. The guard ends in here, which is why it starts in a fraction of the time and
// memory that a second Go process would need. Its environment is the marker alone, which nobody has by accident.
__attribute__((constructor)) static void record_origin(void) {
	if (environ && environ[0] && !environ[1] && !strncmp(environ[0], guard_marker, sizeof guard_marker - 1))
		lockrun_guard(environ[0] + sizeof guard_marker - 1);

	lockrun_confine();
#ifdef M_ARENA_MAX
	// The C library would give each thread of the Go runtime a heap of its own, five system calls and some page faults
	// each, which is measurable in a program that lives for three milliseconds.
	mallopt(M_ARENA_MAX, 1);
#endif
	for (int sig = 1; sig <= 64; sig++) {
		void (*handler)(int);
		if (!disposition(sig, SIG_DFL, &handler) && handler == SIG_IGN)
			origin.ignored |= UINT64_C(1) << (sig - 1);
	}
	pthread_sigmask(SIG_SETMASK, NULL, &origin.mask);
	origin.has_nofile = !getrlimit(RLIMIT_NOFILE, &origin.nofile);
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			origin.closed |= 1 << fd; // Go will open /dev/null there
}

uint64_t lockrun_ignored(void) { return origin.ignored; }

int lockrun_closed(void) { return origin.closed; }

// restore_origin runs between vfork and exec, with every signal blocked: it may call only what a signal handler may.
static void restore_origin(void) {
	for (int sig = 1; sig <= 64; sig++)
		disposition(sig, origin.ignored >> (sig - 1) & 1 ? SIG_IGN : SIG_DFL, NULL);
	if (origin.has_nofile)
		setrlimit(RLIMIT_NOFILE, &origin.nofile);
	for (int fd = 0; fd < 3; fd++)
		if (origin.closed >> fd & 1)
			close(fd);
	sigprocmask(SIG_SETMASK, &origin.mask, NULL);
}

// pointers lays out n strings that follow one another as a null-terminated vector, and returns what follows them.
static char *pointers(char **vec, char *s, int n) {
	for (int i = 0; i < n; i++) {
		vec[i] = s;
		s += strlen(s) + 1;
	}
	vec[n] = NULL;
	return s;
}

// The child shares our memory until it executes (vfork), so it must not return, and leaves its errno in ours.
static pid_t spawn_child(char *path, char **argv, char **envp, int tty, int guard, int *executing, volatile int *err) {
	pid_t parent = getpid();
	pid_t pid = vfork();
	if (pid)
		return pid;
	if (setpgid(0, 0) < 0)
		goto fail;
	// KILL cuts COMMAND's descendants off before the guard can see whose they were. STOP would not help: the kernel sends
	// HUP and CONT to a stopped group that is orphaned. The guard knows them from before (tree_census).
	// A filter may forbid prctl; the guard is then all that protects, and Unprotected says so.
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127); // lockrun died before the line above, so that nobody would send the signal
	if (tty >= 0) {
		pid_t self = getpid();
		ioctl(tty, TIOCSPGRP, &self); // TTOU is still blocked
	}
	// A full pipe or a dead guard is not COMMAND's concern; guard.go explains the message. To ignore PIPE forgets the one
	// that a dead guard has left pending, which would end COMMAND before it begins.
	int64_t started[2] = {MSG_COMMAND_STARTED, getpid()};
	if (guard > 0 && write(guard, started, sizeof started) < 0)
		disposition(SIGPIPE, SIG_IGN, NULL);
	lockrun_spread_self();
	restore_origin();
	*executing = 1;
	execve(path, argv, envp);
fail:
	*err = errno;
	_exit(127);
}

int lockrun_spawn(char *blob, int argc, int envc, int tty, int guard, int *executing) {
	volatile int err = 0;
	char **vec = malloc((argc + envc + 2) * sizeof *vec); // may be megabytes, more than a thread's stack has to be
	if (!vec)
		return -ENOMEM;
	char *env = pointers(vec, blob + strlen(blob) + 1, argc);
	pointers(vec + argc + 1, env, envc);

	lockrun_be_punctual();
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pid_t pid = spawn_child(blob, vec, vec + argc + 1, tty, guard, executing, &err);
	if (pid < 0)
		err = errno;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	free(vec);
	if (pid > 0 && err)
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	return err ? -err : pid;
}
