/* What the hook library gives, and what its parts share: hooks.c knows the calls, slots.c who makes
 * them, counters.c what is counted of a file, names.c their names. */
#ifndef PROFILER_HOOKS_H
#define PROFILER_HOOKS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

enum operation { /* as OPERATIONS of jobs/events/posix_window.py; those of STDIO come last */
    OPEN = 1, CLOSE, READ, PREAD, READV, PREADV, WRITE, PWRITE, WRITEV, PWRITEV, SEEK, FSYNC, FDSYNC, STAT, ACCESS,
    UNLINK, RENAME, RENAMED, MMAP, DUP, OPENDIR, SENDFILE, COPY_RANGE, FOPEN, FDOPEN, FREAD, FWRITE, FSEEK, FFLUSH, FCLOSE
};

struct event { /* 56 bytes; nanoseconds of CLOCK_REALTIME */
    int64_t start, end, offset, length, returned; /* offset, length: -1 where there is none */
    int32_t thread, file, descriptor;
    uint16_t error;
    _Atomic uint16_t operation; /* written last: zero means that the event is not whole */
};

struct side { /* of reads or of writes */
    int64_t bytes, max_byte, last, max_time_size, start, end, time, max_time;
    uint32_t calls, consecutive, sequential, sizes[10], spare;
};

struct counters { /* as COUNTERS of jobs/events/posix_window.py; meaning and edges are those of Darshan 3.4 */
    _Atomic uint32_t lock; /* first comes what reading a file once touches: four cache lines of seven */
    uint32_t last, opens, rw_switches; /* last: 'r' or 'w' */
    int64_t open_start, open_end, close_start, close_end, meta_time, meta_end;
    struct side read;
    int64_t access_size[4];
    uint32_t access_count[4], stride_count[4];
    int64_t stride[4];
    struct side write;
    uint32_t fdopens, dups, seeks, stats, mmaps, fsyncs, fdsyncs, rename_sources, rename_targets, flushes, spare[2];
};

struct window { /* what profiler_start is given; `events` or `counters`, the other is NULL */
    struct event *events;
    uint64_t event_capacity;
    struct counters *counters;
    uint64_t file_capacity;
    char *names; /* a log: number of the file, its length, its bytes, padded to 8 */
    uint64_t name_capacity;
    const char *only; /* folders and files, each ended by a NUL, then an empty one; NULL: all */
};

struct totals { /* what profiler_stop answers */
    uint64_t events, dropped, read_bytes, name_bytes;
    int64_t started, ended;
};

struct attached {
    int64_t slots, modules;
    char foreign[256]; /* a library that has put its own functions into slots; empty: there is none */
};

/* Each answers 0 or an errno. */
EXPORTED int profiler_attach(struct attached *answer);     /* let the calls of this process come here */
EXPORTED int profiler_detach(void);                        /* give every slot back */
EXPORTED int profiler_start(const struct window *asked);   /* EBUSY: a window is open */
EXPORTED int profiler_stop(struct totals *answer);         /* EAGAIN: a thread still records, so the memory must stay */
EXPORTED void profiler_count(const struct event *events, uint64_t n, struct counters *counters, uint64_t files);

void count(struct counters *counters, const struct event *event, int operation);

struct file { /* its number is its place in the arena, in units of 8 bytes; 0 is "no file" */
    uint32_t length, hash;
    struct {
        _Atomic uint32_t window;
        int32_t number; /* in that window; or FILTERED, FULL */
    } in[2];            /* as a file of POSIX calls, of STDIO calls */
    char name[];
};
extern char *names_arena;
extern pthread_mutex_t names_lock; /* of new names, and of a window's files */
static inline struct file *file_at(uint32_t number) { return (struct file *)(names_arena + 8 * (uint64_t)number); }
void *room_of(size_t bytes);                             /* NULL where there is no memory */
int names_begin(void);                                   /* 0 where there is no memory */
uint32_t number_of(const char *name, size_t length);     /* the same until it is forgotten; 0 where there is no room */
void forget_names(void);                                 /* when a window has ended; nobody is recording then */

/* A function of the C library, what is called in its place, and where this library itself finds the function. */
struct hook {
    const char *name;
    void *function, *expected;
};
extern struct hook hooks[];
extern const unsigned hook_count;

/* Patch the slots of modules that were not there before; 0, or an errno: EAGAIN where a module is not ready, EBUSY where
 * another scan is under way and this one is not to `wait`. */
int scan(struct attached *answer, int wait);
extern _Atomic uint64_t mappings_bytes; /* what scans and detachments have read so far */

/* After fork: the thread that held the lock of the slots is not in the child. */
void forget_lock(void);
#endif
