// lockrun_sqlite_memory gives SQLite the allocator of memory.c. It has no effect once SQLite is in use.
void lockrun_sqlite_memory(void);
