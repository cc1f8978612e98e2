// Finding and killing the tree of a job, for the guard.
#ifndef LOCKRUN_SUPERVISE_PROCTREE_H
#define LOCKRUN_SUPERVISE_PROCTREE_H

#include <stdint.h>
#include <sys/types.h>

struct tree {
	pid_t lockrun, child, own_pgrp; // child is 0 until COMMAND is started; own_pgrp is lockrun's process group
	int lockrun_lives;      // its adopted orphans can be known by their parent
	int command_lives;      // child's number cannot be anybody else's yet
	unsigned long long since; // nothing that was started before this, in clock ticks, belongs to the job
	char mark[160];         // LOCKRUN_OWNER=..., as in the environment of the job
	size_t mark_len;
	int blind;              // there is no /proc that shows them
	int64_t spare_ns;       // until then nested guards are left to their work
};

// tree_is_shown tells whether /proc shows processes by the numbers that they have here; tree_linux.go says when not.
int tree_is_shown(void);

// tree_census remembers the members that hang on COMMAND or lockrun now, whatever becomes of their parents. It looks only
// at the tree, not at the whole of /proc, so that it costs next to nothing.
void tree_census(struct tree *t);

// tree_strike kills what it can find at once, without a look that might hang in a sick process.
void tree_strike(struct tree *t);

// tree_had_group tells whether this was the process group of one of those whom the last strike, or kill, has met.
int tree_had_group(pid_t pgrp);

// tree_kill kills what is left and returns how many there were; zombies do not count.
int tree_kill(struct tree *t);

#endif
