//go:build linux

// The job's processes, as /proc shows them. Membership is by process group, by parent, and by the owner's mark in the
// environment, which finds those whose parents have died and who left the group.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "native.h"
#include "proctree.h"

// How long the guard of a lockrun within the job may take to kill what only that one can tell: processes that carry the
// inner owner's mark and have lost their parents. It leaves by itself as soon as there is nobody left.
enum { SPARE_MS = 500 };

struct proc {
	pid_t pid, ppid, pgrp;
	unsigned long long start;
	int member, guard;
};

struct list {
	struct proc *p;
	int n, room;
};

static struct proc *add(struct list *l) {
	if (l->n == l->room) {
		int room = l->room ? 2 * l->room : 64;
		struct proc *p = realloc(l->p, room * sizeof *p);
		if (!p)
			return NULL;
		l->p = p;
		l->room = room;
	}
	return &l->p[l->n];
}

static ssize_t slurp(const char *path, char *buf, size_t size) {
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t n = read(fd, buf, size - 1);
	close(fd);
	if (n >= 0)
		buf[n] = 0;
	return n;
}

// is_our_program compares what a process executes with what we do. It asks for the paths, since a file may be on a server
// that is dead.
static int is_our_program(pid_t pid) {
	char path[40], ours[1024], its[1024];
	snprintf(path, sizeof path, "/proc/%d/exe", pid);
	ssize_t n = readlink("/proc/self/exe", ours, sizeof ours), m = readlink(path, its, sizeof its);
	return n > 0 && n == m && !memcmp(ours, its, n);
}

// look reads one process. It returns -1 for one that is gone, or dead but for its parent's interest.
static int look(pid_t pid, struct proc *p) {
	char path[40], buf[1024], state;
	int threads;
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	if (slurp(path, buf, sizeof buf) <= 0)
		return -1;
	char *name = strchr(buf, '('), *s = strrchr(buf, ')'); // the name may hold anything
	p->pid = pid;
	p->member = 0;
	// Anybody may have the name, and would outlive the lease by being spared.
	p->guard = name && !strncmp(name, "(" GUARD_NAME ")", sizeof GUARD_NAME + 1) && is_our_program(pid);
	if (!s || sscanf(s + 1, " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %llu", &state,
			 &p->ppid, &p->pgrp, &threads, &p->start) != 5)
		return -1;
	// The state is the main thread's. It may be a zombie while others work on, or still let go of what they have.
	return (state == 'Z' && threads <= 1) || state == 'X' ? -1 : 0;
}

int tree_is_shown(void) {
	char self[16], shown[16];
	ssize_t n = readlink("/proc/self", shown, sizeof shown - 1);
	snprintf(self, sizeof self, "%d", getpid());
	if (n > 0)
		shown[n] = 0;
	return n > 0 && !strcmp(shown, self);
}

static void look_around(struct tree *t, struct list *l) {
	DIR *d = t->blind ? NULL : opendir("/proc");
	struct dirent *e;
	l->n = 0;
	while (d && (e = readdir(d))) {
		pid_t pid = atoi(e->d_name);
		if (pid <= 1 || pid == t->lockrun || pid == getpid())
			continue;
		struct proc *p = add(l);
		if (!p)
			break;
		if (!look(pid, p) && p->start >= t->since)
			l->n++;
	}
	if (d)
		closedir(d);
}

// in_environment looks for the mark in one environment. It returns -1 where there is none to be read.
static int in_environment(struct tree *t, const char *path) {
	static char buf[64 * 1024];
	int fd = t->mark_len ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return -1;
	// Both ends of the mark are kept in the buffer while the environment, of up to megabytes, passes through it.
	size_t have = 1;
	buf[0] = 0;
	int found = -1;
	for (ssize_t n; found <= 0 && (n = read(fd, buf + have, sizeof buf - have - 1)) > 0;) {
		have += n;
		buf[have] = 0;
		found = 0;
		for (char *s = buf; !found && (s = memmem(s, have + 1 - (s - buf), t->mark, t->mark_len)); s++)
			found = s > buf && !s[-1] && !s[t->mark_len];
		size_t keep = t->mark_len + 2;
		if (have > keep) {
			memmove(buf, buf + have - keep, keep);
			have = keep;
		}
	}
	close(fd);
	return found;
}

// carries_mark reads the environment, which may hang in a process whose memory is locked: never the first thing to do.
// A process whose main thread has ended shows it through its other threads only.
static int carries_mark(struct tree *t, pid_t pid) {
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/environ", pid);
	int found = in_environment(t, path);
	if (found >= 0)
		return found;
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *d = opendir(path);
	for (struct dirent *e; d && found < 0 && (e = readdir(d));) {
		snprintf(path, sizeof path, "/proc/%d/task/%d/environ", pid, atoi(e->d_name));
		if (e->d_name[0] != '.')
			found = in_environment(t, path);
	}
	if (d)
		closedir(d);
	return found > 0;
}

static int is_member(struct list *l, pid_t pid) {
	for (int i = 0; i < l->n; i++)
		if (l->p[i].pid == pid)
			return l->p[i].member;
	return 0;
}

// spread makes members of all children of members.
static void spread(struct list *l) {
	for (int grew = 1; grew;) {
		grew = 0;
		for (int i = 0; i < l->n; i++)
			if (!l->p[i].member && is_member(l, l->p[i].ppid))
				l->p[i].member = grew = 1;
	}
}

static struct list known;

// add_children appends the children of all threads of a process, as the kernel lists them.
static void add_children(struct tree *t, pid_t pid) {
	char path[64], buf[4096];
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));) {
		snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, atoi(e->d_name));
		if (e->d_name[0] == '.' || slurp(path, buf, sizeof buf) <= 0)
			continue;
		for (char *s = buf, *end; known.n < 4096; s = end) {
			pid_t child = strtol(s, &end, 10);
			struct proc *p = add(&known);
			if (end == s || !p)
				break;
			if (child != getpid() && !look(child, p) && p->start >= t->since &&
			    (pid != t->lockrun || p->pgrp != t->own_pgrp))
				known.n++;
		}
	}
	if (d)
		closedir(d);
}

void tree_census(struct tree *t) {
	known.n = 0;
	if (t->blind)
		return;
	add_children(t, t->lockrun);
	for (int i = 0; i < known.n; i++)
		add_children(t, known.p[i].pid);
}

static int is_known(struct proc *p) {
	for (int i = 0; i < known.n; i++)
		if (known.p[i].pid == p->pid && known.p[i].start == p->start)
			return 1;
	return 0;
}

// recognise marks the members; with deep set, also by environment.
static void recognise(struct tree *t, struct list *l, int deep) {
	for (int i = 0; i < l->n; i++) {
		struct proc *p = &l->p[i];
		// Processes in lockrun's own group were started by lockrun, or before it; they are no part of the job.
		p->member = is_known(p) || (t->child && (p->pid == t->child || p->ppid == t->child || p->pgrp == t->child)) ||
			    (t->lockrun_lives && p->ppid == t->lockrun && p->pgrp != t->own_pgrp);
	}
	spread(l);
	if (!deep)
		return;
	for (int i = 0; i < l->n; i++)
		if (!l->p[i].member && carries_mark(t, l->p[i].pid))
			l->p[i].member = 1;
	spread(l);
}

// send signals exactly the process that was looked at, although its number may have passed to another since. With spare
// set, not a nested guard, which may have got its name since as well.
static void send(struct proc *p, int sig, int spare) {
	if (spare && p->guard)
		return;
#if defined SYS_pidfd_open && defined SYS_pidfd_send_signal
	int fd = syscall(SYS_pidfd_open, p->pid, 0);
	if (fd >= 0) {
		struct proc again;
		if (!look(p->pid, &again) && again.start == p->start && !(spare && again.guard))
			syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
		close(fd);
		return;
	}
	if (errno == ESRCH)
		return;
#endif
	kill(p->pid, sig);
}

static int64_t monotonic_ns(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

// kill_members returns how many there were, those that are spared included.
static int kill_members(struct tree *t, struct list *l) {
	int n = 0, spare = monotonic_ns() < t->spare_ns;
	for (int i = 0; i < l->n; i++)
		if (l->p[i].member) {
			send(&l->p[i], SIGKILL, spare);
			n++;
		}
	return n;
}

static struct list procs;

void tree_strike(struct tree *t) {
	t->spare_ns = monotonic_ns() + SPARE_MS * INT64_C(1000000);
	// Stopped first: a parent that is dead no longer tells whose child a process was, and a tree that is stopped does
	// not grow while it is being counted.
	if (t->command_lives)
		kill(-t->child, SIGSTOP);
	// Those who have left the group are known from the last census. On a host without time for us, reading all of /proc
	// takes longer than the margin between KILL and the end of the lease.
	for (int i = 0; i < known.n; i++)
		send(&known.p[i], SIGSTOP, 1);
	look_around(t, &procs);
	recognise(t, &procs, 0);
	if (t->command_lives) {
		kill(-t->child, SIGKILL);
		// Dying takes the processor, too, and what it holds it lets go of only at the end. It executes nothing of its own
		// any more, so that nobody is the worse for its being first in the queue.
		setpriority(PRIO_PGRP, t->child, -20);
	}
	kill_members(t, &procs);
}

int tree_had_group(pid_t pgrp) {
	for (int i = 0; i < procs.n; i++)
		if (procs.p[i].member && procs.p[i].pgrp == pgrp)
			return 1;
	return 0;
}

int tree_kill(struct tree *t) {
	look_around(t, &procs);
	recognise(t, &procs, 1);
	return kill_members(t, &procs);
}
