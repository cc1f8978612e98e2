//go:build linux

// The start on one processor; onecpu_linux.go says why.
#define _GNU_SOURCE
#include <dirent.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "native.h"

// Defined by a program that wants to start so, and by no test binary.
extern const int lockrun_starts_on_one_cpu __attribute__((weak));

static cpu_set_t given, one;
static int confined, slack;

enum { LAZY_NS = 1000000 };

void lockrun_confine(void) {
	int cpu;
	if (!&lockrun_starts_on_one_cpu || sched_getaffinity(0, sizeof given, &given) || CPU_COUNT(&given) < 2)
		return;
	if ((cpu = sched_getcpu()) < 0 || access("/proc/self/task", X_OK)) // without it there is no way back
		return;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	confined = !sched_setaffinity(0, sizeof one, &one);

	// A thread of the runtime looks every 20 us whether the others need help, which on one processor takes it from them.
	// The threads inherit this; for those of the runtime a millisecond is near enough for good.
	slack = prctl(PR_GET_TIMERSLACK);
	if (confined && slack > 0 && slack < LAZY_NS)
		prctl(PR_SET_TIMERSLACK, LAZY_NS);
}

void lockrun_be_punctual(void) {
	if (confined && prctl(PR_GET_TIMERSLACK) == LAZY_NS)
		prctl(PR_SET_TIMERSLACK, slack);
}

// spread_one undoes it for a thread, unless somebody else has decided about that thread meanwhile. It returns whether
// there was something to undo.
static int spread_one(pid_t tid) {
	cpu_set_t now;
	if (sched_getaffinity(tid, sizeof now, &now) || !CPU_EQUAL(&now, &one))
		return 0;
	return !sched_setaffinity(tid, sizeof given, &given);
}

void lockrun_spread_self(void) {
	if (confined)
		spread_one(0);
}

void lockrun_spread(void) {
	lockrun_be_punctual();
	// Again until nothing is found: a thread that was still confined may have made another one meanwhile. Bounded, for
	// one processor may by now be all that there is.
	for (int found = confined, pass = 0; found && pass < 8; pass++) {
		found = 0;
		DIR *d = opendir("/proc/self/task");
		for (struct dirent *e; d && (e = readdir(d));)
			if (e->d_name[0] != '.')
				found |= spread_one(atoi(e->d_name));
		if (d)
			closedir(d);
	}
}

// forget_code lets go of the pages of an object that are never written to. They stay in the page cache.
static int forget_code(struct dl_phdr_info *o, size_t size, void *data) {
	uintptr_t page = sysconf(_SC_PAGESIZE);
	for (int i = 0; i < o->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &o->dlpi_phdr[i];
		uintptr_t from = (o->dlpi_addr + p->p_vaddr) & -page, to = (o->dlpi_addr + p->p_vaddr + p->p_memsz) & -page;
		if (p->p_type == PT_LOAD && !(p->p_flags & PF_W) && to > from)
			madvise((void *)from, to - from, MADV_DONTNEED);
	}
	return 1; // the program itself comes first
}

void lockrun_slim(void) {
	if (confined)
		dl_iterate_phdr(forget_code, NULL);
}
