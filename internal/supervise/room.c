//go:build linux

// Whether there is room for threads, asked by making them outside the Go runtime, which ends the program where it cannot
// make one.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>

#include "native.h"

enum { MOST = 16 };

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *pass(void *unused) {
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	return unused;
}

int lockrun_has_room(int n) {
	pthread_t made[MOST];
	sigset_t all, old;
	int got = 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); // a handler of the Go runtime would not know these threads
	pthread_mutex_lock(&gate);
	while (got < n && got < MOST && !pthread_create(&made[got], NULL, pass, NULL))
		got++;
	pthread_mutex_unlock(&gate);
	for (int i = 0; i < got; i++)
		pthread_join(made[i], NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return got == n;
}
