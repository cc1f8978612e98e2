//go:build linux

// Catching signals without os/signal, which costs two threads and a goroutine that a wrapper started each minute can do
// without: the handler writes the number into a pipe that the one loop of the supervisor polls.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "native.h"

static volatile int catch_fd = -1;

static void on_signal(int sig) {
	int saved = errno;
	unsigned char b = sig;
	// A full pipe holds 65,536 signals that the loop has not looked at; one more tells it nothing new.
	if (write(catch_fd, &b, 1) < 0)
		errno = 0;
	errno = saved;
}

void lockrun_catch_to(int fd) { catch_fd = fd; }

static int dispose(int sig, void (*handler)(int)) {
	struct sigaction sa;
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = handler;
	sa.sa_flags = SA_ONSTACK | SA_RESTART; // SA_ONSTACK: a goroutine's stack is too small for a handler
	sigfillset(&sa.sa_mask);
	return sigaction(sig, &sa, NULL) ? -errno : 0;
}

int lockrun_catch(int sig) { return dispose(sig, on_signal); }
int lockrun_ignore(int sig) { return dispose(sig, SIG_IGN); }
int lockrun_default(int sig) { return dispose(sig, SIG_DFL); }

int lockrun_tcsetpgrp(int tty, int pgrp) {
	sigset_t one, mask;
	sigemptyset(&one);
	sigaddset(&one, SIGTTOU);
	pthread_sigmask(SIG_BLOCK, &one, &mask);
	int err = ioctl(tty, TIOCSPGRP, &pgrp) ? -errno : 0;
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return err;
}
