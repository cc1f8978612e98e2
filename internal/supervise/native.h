// What the C part of this package offers to its Go part, on Linux with cgo.
#ifndef LOCKRUN_SUPERVISE_NATIVE_H
#define LOCKRUN_SUPERVISE_NATIVE_H

#include <stdint.h>

// What lockrun tells its guard; guard.go describes it.
enum { MSG_DEADLINE = 1, MSG_NEVER = 2, MSG_STAND_DOWN = 3, MSG_COMMAND_ENDED = 4, MSG_COMMAND_STARTED = 5 };

// GUARD_NAME is how a guard calls itself; guard.go has it too.
#define GUARD_NAME "job-guard"

// lockrun_ignored is the set of signals that were ignored when the program was executed; bit n-1 is signal n.
uint64_t lockrun_ignored(void);

// lockrun_closed is the set of descriptors from 0 to 2 that were not open then; bit n is descriptor n.
int lockrun_closed(void);

// lockrun_confine confines the program to one processor if it wants to start so, lockrun_spread undoes that for all of its
// threads, and lockrun_spread_self for a process that was just made. See onecpu_linux.go.
void lockrun_confine(void);
void lockrun_spread(void);
void lockrun_spread_self(void);

// lockrun_has_room tells whether n more threads, 16 at most, can be had now.
int lockrun_has_room(int n);

// lockrun_slim unmaps the code that the start has used, until it is used again.
void lockrun_slim(void);

// lockrun_be_punctual has the calling thread's timers, and those of the processes it makes, expire as exactly as before.
void lockrun_be_punctual(void);

// lockrun_spawn executes a program as a new process in a process group of its own, as if the Go runtime had never been
// there. blob holds path, argc arguments and envc variables, each ended by NUL. tty is the descriptor of the terminal
// whose foreground the group gets, or -1. guard is the pipe to the guard, or 0: the process itself says there who it is,
// before it executes anything, because lockrun may be stopped or dead by then. It returns the pid, or the negative errno; *executing tells whether it was
// the execution that failed.
int lockrun_spawn(char *blob, int argc, int envc, int tty, int guard, int *executing);

// lockrun_spawn_guard executes this program again as a guard. marker is its whole environment, and descriptor i of the
// guard is fds[i]; it gets no other. With patience, the execution may be put off by so many milliseconds, while which the
// process shares our memory and does nothing but watch for our end. It returns the pid or the negative errno.
int lockrun_spawn_guard(const char *marker, const char *name, const int *fds, int n, int patience);

// lockrun_guard is the guard's whole life.
void lockrun_guard(const char *marker) __attribute__((noreturn));

// lockrun_catch makes the signal write its number, as one byte, to the descriptor given to lockrun_catch_to.
int lockrun_catch(int sig);
void lockrun_catch_to(int fd);

// lockrun_ignore and lockrun_default set the two dispositions that need no code.
int lockrun_ignore(int sig);
int lockrun_default(int sig);

// lockrun_tcsetpgrp works from the background too. It returns 0 or the negative errno.
int lockrun_tcsetpgrp(int tty, int pgrp);

#endif
