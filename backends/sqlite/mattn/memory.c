//go:build cgo

// SQLite's memory, for a process that lives for milliseconds and then once more for as long as its job. musl's allocator,
// with which lockrun starts fastest, maps and unmaps a region for each size that it meets, and so took half of the time
// of an acquire. Here the first megabyte comes from one region, in blocks that are kept for their size; what does not fit
// there, like a list of a hundred thousand keys, comes from malloc.
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

// As in sqlite3.h, which is another package's.
enum { CONFIG_MALLOC = 4, CONFIG_PAGECACHE = 7, CONFIG_MEMSTATUS = 9 };
struct methods {
	void *(*malloc)(int);
	void (*free)(void *);
	void *(*realloc)(void *, int);
	int (*size)(void *);
	int (*roundup)(int);
	int (*init)(void *);
	void (*shutdown)(void *);
	void *data;
};
extern int sqlite3_config(int, ...);

// A block is a header and what SQLite gets, aligned to eight bytes as it demands.
struct block {
	int size, class; // class MALLOCED: not from the arena
	union {
		struct block *next; // in a list of free ones
		char data[8];
	};
};
enum { HEADER = offsetof(struct block, data), CLASSES = 60, MALLOCED = -1, LARGEST = 1 << 16, ARENA = 1 << 20 };

static _Alignas(4096) char arena[ARENA];
static size_t used;
static struct block *unused[CLASSES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// class_of rounds a size up to that of its class: steps of 16 bytes up to 512, and then four to each doubling.
static int class_of(int n, int *size) {
	if (n <= 512) {
		*size = n < 16 ? 16 : (n + 15) & ~15;
		return *size / 16 - 1;
	}
	int class = 31;
	for (*size = 512; *size < n; class++)
		*size += 128 << ((class - 31) / 4);
	return class;
}

static struct block *block_of(void *p) { return (struct block *)((char *)p - HEADER); }

static struct block *from_arena(int size, int class) {
	struct block *b = NULL;
	pthread_mutex_lock(&mutex);
	if (unused[class]) {
		b = unused[class];
		unused[class] = b->next;
	} else if (used + HEADER + size <= ARENA) {
		b = (struct block *)(arena + used);
		used += HEADER + size;
		b->size = size;
		b->class = class;
	}
	pthread_mutex_unlock(&mutex);
	return b;
}

static void *give(int n) {
	struct block *b = NULL;
	int size = (n + 7) & ~7; // SQLite asks for less than 2 GB
	if (n <= LARGEST) {
		int class = class_of(n, &size);
		b = from_arena(size, class);
	}
	if (!b) {
		if (!(b = malloc(HEADER + (size_t)size)))
			return NULL;
		b->size = size;
		b->class = MALLOCED;
	}
	return b->data;
}

static void take_back(void *p) {
	struct block *b = block_of(p);
	if (b->class == MALLOCED) {
		free(b);
		return;
	}
	pthread_mutex_lock(&mutex);
	b->next = unused[b->class];
	unused[b->class] = b;
	pthread_mutex_unlock(&mutex);
}

static int size_of(void *p) { return p ? block_of(p)->size : 0; }

static void *resize(void *p, int n) {
	if (size_of(p) >= n)
		return p;
	void *q = give(n);
	if (q) {
		memcpy(q, p, size_of(p));
		take_back(p);
	}
	return q;
}

static int round_up(int n) {
	int size = (n + 7) & ~7;
	if (n <= LARGEST)
		class_of(n, &size);
	return size;
}

static int begin(void *data) { return 0; }
static void end(void *data) {}

void lockrun_sqlite_memory(void) {
	static const struct methods own = {give, take_back, resize, size_of, round_up, begin, end, NULL};
	sqlite3_config(CONFIG_MALLOC, &own);
	// Nobody asks for the sums, which take another lock at each allocation; and twenty pages that SQLite would set up in
	// advance are four times as many as a run reads.
	sqlite3_config(CONFIG_MEMSTATUS, 0);
	sqlite3_config(CONFIG_PAGECACHE, NULL, 0, 0);
}
