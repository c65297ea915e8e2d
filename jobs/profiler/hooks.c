/* Record the POSIX and STDIO calls of this process while a window is open.
 *
 * profiler_start opens a window in memory of the caller, and profiler_stop ends the window. Between windows, a hook
 * costs one load and one branch. A call is recorded only if it begins and ends in the same window. `gate` has the number
 * of the open window, and the number of threads that are recording or looking up names. After profiler_stop, no thread
 * starts recording; profiler_stop waits for the threads that are recording, so that the caller may free the memory.
 *
 * Only the numbers of file names stay valid after a window, and they are forgotten as well if there are many names. The
 * file of a file descriptor is looked up again in each window, because between windows a close is not seen. */
#define _GNU_SOURCE
#include "hooks.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { DESCRIPTORS = 1 << 20, FILTERED = -1, FULL = -2 };
enum { STDIO = 1, ONLY_BYTES = 1 << 16, LOOKS = 100 };
enum { CLOSE_RANGE = 436, CLOEXEC = 4 }; /* close_range exists since Linux 5.9 and glibc 2.34 */

/* For each file descriptor: the number of the window << 32 | the number of the file. */
static _Atomic uint64_t *descriptors;

/* The number of the open window, or 0 if no window is open. The variable has a cache line of its own, which is hardly
 * ever written, because every hook reads the variable. */
static _Atomic uint32_t open_window;
static struct {
    _Alignas(64) _Atomic uint64_t gate; /* number of the window << 32 | number of threads that are recording */
    _Atomic uint64_t events, dropped, read_bytes;
} now_in;
static struct window window;
static uint64_t window_files, name_bytes, mappings_before;
static int64_t started;
static uint32_t last_window;
static pid_t owner;
static char only[ONLY_BYTES];

static _Thread_local struct {
    pid_t thread;
    char recording; /* nonzero while this thread records, so that a signal handler does not record at the same time */
    char loaded;    /* how often to search for newly loaded modules; a new module may not be ready at once */
    char vforked;   /* nonzero if this process may be a child of vfork */
} my __attribute__((tls_model("initial-exec")));

static inline int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* ---- find the file of a call ---- */

/* A hook runs on the stack of its caller, which may be small. Functions with a large frame are not inlined, so that
 * only one large frame is on the stack at a time. */
#define LARGE_FRAME __attribute__((noinline))

/* Return the number of the file to which a file descriptor refers. The file is looked up once per window. */
static LARGE_FRAME uint32_t file_of(int fd, uint32_t in) {
    if (fd < 0) return number_of("<no descriptor>", 15);
    uint64_t known = fd < DESCRIPTORS ? atomic_load(&descriptors[fd]) : 0;
    if (known >> 32 == in) return (uint32_t)known;
    char link[32], name[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name);
    if (length <= 0) return number_of("<no descriptor>", 15);
    if (name[0] != '/') { /* all pipes (pipe:[1234]) get one name, and all sockets (socket:[1234]) get one name */
        char *number = memchr(name, ':', (size_t)length);
        if (number && number[1] == '[' && number[2] >= '0' && number[2] <= '9') length = number - name;
    }
    uint32_t number = number_of(name, (size_t)length);
    if (fd < DESCRIPTORS) atomic_compare_exchange_strong(&descriptors[fd], &known, (uint64_t)in << 32 | number);
    return number;
}

static void refers(int fd, uint32_t in, uint32_t number) {
    if (fd >= 0 && fd < DESCRIPTORS) atomic_store_explicit(&descriptors[fd], (uint64_t)in << 32 | number, memory_order_release);
}

/* Return the number of a path below the folder `above`; NULL means the current folder of the process. */
static LARGE_FRAME uint32_t below(const struct file *above, const char *path, size_t length) {
    char name[PATH_MAX + 256];
    size_t before = 0;
    if (!above && getcwd(name, PATH_MAX)) before = strlen(name);
    if (above && above->length < PATH_MAX) memcpy(name, above->name, before = above->length);
    while (length > 1 && path[0] == '.' && path[1] == '/') path += 2, length -= 2;
    if (before && length == 1 && path[0] == '.') return number_of(name, before);
    if (before > 1) name[before++] = '/';
    if (before + length > sizeof name) return number_of("<path too long>", 15);
    memcpy(name + before, path, length);
    return number_of(name, before + length);
}

/* Return the number of a path. A relative path begins at `folder`. An empty path means the file descriptor `folder`. */
static uint32_t path_of(int folder, const char *path, uint32_t in) {
    if (!path || !*path) return file_of(folder, in);
    size_t length = strnlen(path, PATH_MAX), own = sizeof "/proc/self/fd/" - 1;
    if (length > own && length < own + 8 && !memcmp(path, "/proc/self/fd/", own) &&
        strspn(path + own, "0123456789") == length - own)
        return file_of(atoi(path + own), in); /* the path names a file descriptor of this process */
    if (*path == '/') return number_of(path, length);
    return below(folder == AT_FDCWD ? NULL : file_at(file_of(folder, in)), path, length);
}

/* ---- the files of a window ---- */

static int asked_for(const struct file *file) {
    if (!window.only) return 1;
    for (const char *each = window.only; *each; each += strlen(each) + 1) {
        size_t length = strlen(each);
        if (file->length < length || memcmp(file->name, each, length)) continue;
        /* The last condition is for the folder "/", whose name ends with a slash. */
        if (file->length == length || file->name[length] == '/' || each[length - 1] == '/') return 1;
    }
    return 0;
}

static int32_t enlisted(const struct file *file, int module) {
    if (!asked_for(file)) return FILTERED;
    uint64_t bytes = 8 + ((uint64_t)file->length + 7) / 8 * 8;
    if (window_files == window.file_capacity || name_bytes + bytes > window.name_capacity) return FULL;
    uint32_t *entry = (uint32_t *)(window.names + name_bytes);
    memcpy(entry + 2, file->name, file->length);
    entry[0] = (uint32_t)window_files << 1 | (uint32_t)module;
    /* The length is stored last, because a reader takes the length 0 as the sign of an incomplete entry. */
    __atomic_store_n(&entry[1], file->length, __ATOMIC_RELEASE);
    name_bytes += bytes;
    return (int32_t)window_files++;
}

/* Return the number of a file within the window. The first call on a file adds the file to the window. */
static int32_t number_in_window(uint32_t number, int module, uint32_t in) {
    struct file *file = file_at(number);
    if (!number || !file->length) return FULL;
    if (atomic_load_explicit(&file->in[module].window, memory_order_acquire) != in) {
        pthread_mutex_lock(&names_lock);
        if (atomic_load_explicit(&file->in[module].window, memory_order_relaxed) != in) {
            file->in[module].number = enlisted(file, module);
            atomic_store_explicit(&file->in[module].window, in, memory_order_release);
        }
        pthread_mutex_unlock(&names_lock);
    }
    return file->in[module].number;
}

/* ---- recording ---- */

static int enter(uint32_t in) {
    uint64_t gate = atomic_load(&now_in.gate);
    do
        if (gate >> 32 != in) return 0;
    while (!atomic_compare_exchange_weak(&now_in.gate, &gate, gate + 1));
    return 1;
}
static void leave(void) { atomic_fetch_sub_explicit(&now_in.gate, 1, memory_order_release); }

struct call {
    int64_t start, end;
    uint32_t in;
    int error;
};

static void record(const struct call *call, int operation, uint32_t file, int fd, int64_t offset, int64_t length, int64_t returned) {
    int reads = (operation >= READ && operation <= PREADV) || operation == FREAD || operation == SENDFILE ||
                operation == COPY_RANGE;
    if (reads && returned > 0) atomic_fetch_add_explicit(&now_in.read_bytes, (uint64_t)returned, memory_order_relaxed);
    int32_t number = number_in_window(file, operation >= FOPEN ? STDIO : 0, call->in);
    if (!my.thread) my.thread = (pid_t)syscall(SYS_gettid); /* glibc has the function gettid only since 2.30 */
    struct event made = {call->start, call->end, offset, length, returned, my.thread, number, fd,
                         (uint16_t)(returned < 0 ? call->error : 0), 0};
    if (number == FULL) atomic_fetch_add(&now_in.dropped, 1);
    else if (number >= 0 && window.events) {
        uint64_t at = atomic_fetch_add_explicit(&now_in.events, 1, memory_order_relaxed);
        if (at < window.event_capacity) {
            memcpy(&window.events[at], &made, offsetof(struct event, operation));
            atomic_store_explicit(&window.events[at].operation, (uint16_t)operation, memory_order_release);
        } else atomic_fetch_add(&now_in.dropped, 1);
    } else if (number >= 0) {
        struct counters *counters = &window.counters[number];
        for (int line = 64; operation == OPEN && line < 256; line += 64) /* the next calls will use these lines */
            __builtin_prefetch((char *)counters + line, 1);
        while (atomic_exchange_explicit(&counters->lock, 1, memory_order_acquire)) sched_yield();
        count(counters, &made, operation);
        atomic_store_explicit(&counters->lock, 0, memory_order_release);
    }
}

/* Return the number of the open window, or 0 if this call must not be recorded. For 0, a hook only makes the call. */
static uint32_t watching(void) {
    uint32_t in = atomic_load_explicit(&open_window, memory_order_acquire);
    if (__builtin_expect(!in, 1)) return 0;
    if (my.recording) {
        atomic_fetch_add(&now_in.dropped, 1);
        return 0;
    }
    if (my.vforked && getpid() != owner) return 0;
    my.vforked = 0;
    if (my.loaded) {
        int error = errno;
        my.recording = 1;
        int scanned = scan(NULL, 0);
        my.loaded = (char)(scanned == EBUSY ? my.loaded : scanned ? my.loaded - 1 : 0);
        my.recording = 0, errno = error;
    }
    return in;
}

/* Run code that uses names or records a call. The window cannot end while this code runs, and the code does not run if
 * the window has ended. The value of errno does not change. */
#define INSIDE(in, ...)                \
    if (enter(in)) {                   \
        int error = errno;             \
        my.recording = 1;              \
        __VA_ARGS__;                   \
        my.recording = 0, errno = error; \
        leave();                       \
    }

/* Make the call `made`, with a time stamp before and after the call, and then run the code that records the call. The
 * value of errno is the value after the call. */
#define WATCHED(type, before, made, ...)  \
    struct call call = {.in = watching()}; \
    if (!call.in) return made;            \
    int fd_before = -1;                   \
    uint32_t file = 0;                    \
    (void)fd_before, (void)file;          \
    before;                               \
    call.start = now();                   \
    type returned = made;                 \
    call.error = errno;                   \
    call.end = now();                     \
    INSIDE(call.in, __VA_ARGS__)          \
    return returned

/* Return the offset at which a read or write at the current position began, or -1 for a pipe or a failed call. */
static int64_t began(int fd, int64_t returned) {
    int64_t position = lseek(fd, 0, SEEK_CUR);
    return position < 0 || returned < 0 ? -1 : position - returned;
}

static int64_t length_of(const struct iovec *parts, int count) {
    int64_t sum = 0;
    for (int i = 0; i < count; i++) sum += (int64_t)parts[i].iov_len;
    return sum;
}

/* Do not read a path that the kernel could not read (EFAULT), because reading such a path would crash the process. */
#define PATH_UNLESS(failed, folder, path) \
    ((failed) && call.error == EFAULT ? number_of("<no path>", 9) : path_of(folder, path, call.in))
#define PATH(folder, path) PATH_UNLESS(returned == -1, folder, path)
#define FAILED (returned == -1 ? -1 : 0)
#define LENGTH (FAILED ? -1 : length_of(parts, count))

/* On x86-64 and aarch64, a variadic function gets the mode like an ordinary argument. If the caller passes no mode, the
 * kernel does not read the mode. */
static int hook_openat(int folder, const char *path, int flags, mode_t mode) {
    WATCHED(int, , folder == AT_FDCWD ? open(path, flags, mode) : openat(folder, path, flags, mode), file = PATH(folder, path);
            if (returned >= 0) refers(returned, call.in, file);
            record(&call, OPEN, file, returned, -1, flags, returned));
}
static int hook_open(const char *path, int flags, mode_t mode) { return hook_openat(AT_FDCWD, path, flags, mode); }
static int hook_open_2(const char *path, int flags) { return hook_openat(AT_FDCWD, path, flags, 0); }
static int hook_openat_2(int folder, const char *path, int flags) { return hook_openat(folder, path, flags, 0); }
static int hook_creat(const char *path, mode_t mode) { return hook_openat(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* Forget the file of a file descriptor before the descriptor is closed, and return the number of the file. After the
 * close, another thread may already have opened another file with the same descriptor. */
static uint32_t forgotten(int fd, uint32_t in) {
    uint32_t file = file_of(fd, in);
    if (fd >= 0 && fd < DESCRIPTORS) atomic_store_explicit(&descriptors[fd], 0, memory_order_release);
    return file;
}
static int hook_close(int fd) {
    WATCHED(int, INSIDE(call.in, file = forgotten(fd, call.in)), close(fd),
            record(&call, CLOSE, file, fd, -1, -1, returned));
}

/* A call of close_range makes no events for the closed files. */
static int hook_close_range(unsigned first, unsigned last, int flags) {
    if (watching() && !(flags & CLOEXEC))
        for (unsigned fd = first; fd <= last && fd < DESCRIPTORS; fd++)
            if (atomic_load(&descriptors[fd])) atomic_store(&descriptors[fd], 0);
    return (int)syscall(CLOSE_RANGE, first, last, flags);
}

#define AT_POSITION(operation, made, length) \
    WATCHED(ssize_t, , made, record(&call, operation, file_of(fd, call.in), fd, began(fd, returned), length, returned))
#define AT_OFFSET(operation, made, length) \
    WATCHED(ssize_t, , made, record(&call, operation, file_of(fd, call.in), fd, offset, length, returned))

static ssize_t hook_read(int fd, void *to, size_t n) { AT_POSITION(READ, read(fd, to, n), (int64_t)n); }
static ssize_t hook_read_chk(int fd, void *to, size_t n, size_t room) { /* aborts like __chk_fail of glibc */
    return n > room ? abort(), -1 : hook_read(fd, to, n);
}
static ssize_t hook_write(int fd, const void *from, size_t n) { AT_POSITION(WRITE, write(fd, from, n), (int64_t)n); }
static ssize_t hook_pread(int fd, void *to, size_t n, off_t offset) { AT_OFFSET(PREAD, pread(fd, to, n, offset), (int64_t)n); }
static ssize_t hook_pread_chk(int fd, void *to, size_t n, off_t offset, size_t room) {
    return n > room ? abort(), -1 : hook_pread(fd, to, n, offset);
}
static ssize_t hook_pwrite(int fd, const void *from, size_t n, off_t offset) {
    AT_OFFSET(PWRITE, pwrite(fd, from, n, offset), (int64_t)n);
}
#define PARTS int fd, const struct iovec *parts, int count
#define VECTORED(verb, VERB) /* the offset -1 means the current position of the file */                                    \
    static ssize_t hook_##verb##v(PARTS) { AT_POSITION(VERB##V, verb##v(fd, parts, count), LENGTH); }                      \
    static ssize_t hook_p##verb##v(PARTS, off_t offset) { AT_OFFSET(P##VERB##V, p##verb##v(fd, parts, count, offset), LENGTH); } \
    static ssize_t hook_p##verb##v2(PARTS, off_t offset, int flags) {                                                      \
        if (offset == -1) { AT_POSITION(P##VERB##V, p##verb##v2(fd, parts, count, offset, flags), LENGTH); }               \
        AT_OFFSET(P##VERB##V, p##verb##v2(fd, parts, count, offset, flags), LENGTH);                                       \
    }
VECTORED(read, READ)
VECTORED(write, WRITE)
static off_t hook_lseek(int fd, off_t offset, int from) {
    WATCHED(off_t, , lseek(fd, offset, from), record(&call, SEEK, file_of(fd, call.in), fd, offset, -1, returned));
}

#define OF_DESCRIPTOR(operation, made) \
    WATCHED(int, , made, record(&call, operation, file_of(fd, call.in), fd, -1, -1, returned))
#define OF_PATH(operation, folder, made) \
    WATCHED(int, , made, record(&call, operation, PATH(folder, path), -1, -1, -1, returned))

static int hook_fsync(int fd) { OF_DESCRIPTOR(FSYNC, fsync(fd)); }
static int hook_fdatasync(int fd) { OF_DESCRIPTOR(FDSYNC, fdatasync(fd)); }
static int hook_fstat(int fd, struct stat *to) { OF_DESCRIPTOR(STAT, fstat(fd, to)); }
static int hook_stat(const char *path, struct stat *to) { OF_PATH(STAT, AT_FDCWD, stat(path, to)); }
static int hook_lstat(const char *path, struct stat *to) { OF_PATH(STAT, AT_FDCWD, lstat(path, to)); }
static int hook_fstatat(int folder, const char *path, struct stat *to, int flags) {
    OF_PATH(STAT, folder, fstatat(folder, path, to, flags));
}
static int hook_statx(int folder, const char *path, int flags, unsigned mask, struct statx *to) {
    OF_PATH(STAT, folder, statx(folder, path, flags, mask, to));
}
/* Programs that were linked with a glibc before 2.33 call these functions. `version` has only ever had one value. */
static int hook___xstat(int version, const char *path, struct stat *to) { return (void)version, hook_stat(path, to); }
static int hook___lxstat(int version, const char *path, struct stat *to) { return (void)version, hook_lstat(path, to); }
static int hook___fxstat(int version, int fd, struct stat *to) { return (void)version, hook_fstat(fd, to); }
static int hook___fxstatat(int version, int folder, const char *path, struct stat *to, int flags) {
    return (void)version, hook_fstatat(folder, path, to, flags);
}
static int hook_access(const char *path, int mode) { OF_PATH(ACCESS, AT_FDCWD, access(path, mode)); }
static int hook_faccessat(int folder, const char *path, int mode, int flags) {
    OF_PATH(ACCESS, folder, faccessat(folder, path, mode, flags));
}
static int hook_unlink(const char *path) { OF_PATH(UNLINK, AT_FDCWD, unlink(path)); }
static int hook_unlinkat(int folder, const char *path, int flags) { OF_PATH(UNLINK, folder, unlinkat(folder, path, flags)); }

static int hook_renameat2(int folder, const char *path, int to_folder, const char *to, unsigned flags) {
    int here = !flags && folder == AT_FDCWD && to_folder == AT_FDCWD; /* in this case, make the system call rename */
    WATCHED(int, , here    ? rename(path, to)
                   : flags ? renameat2(folder, path, to_folder, to, flags) : renameat(folder, path, to_folder, to),
            record(&call, RENAME, PATH(folder, path), -1, -1, -1, returned);
            record(&call, RENAMED, PATH(to_folder, to), -1, -1, -1, returned));
}
static int hook_renameat(int folder, const char *path, int to_folder, const char *to) {
    return hook_renameat2(folder, path, to_folder, to, 0);
}
static int hook_rename(const char *path, const char *to) { return hook_renameat2(AT_FDCWD, path, AT_FDCWD, to, 0); }

static void *hook_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    if (flags & MAP_ANONYMOUS || fd < 0) return mmap(at, n, protection, flags, fd, offset);
    WATCHED(void *, , mmap(at, n, protection, flags, fd, offset),
            record(&call, MMAP, file_of(fd, call.in), fd, offset, (int64_t)n, returned == MAP_FAILED ? -1 : 0));
}

#define DUPLICATED(made) \
    WATCHED(int, , made, refers(returned, call.in, file = file_of(fd, call.in)); record(&call, DUP, file, fd, -1, -1, returned))
static int hook_dup(int fd) { DUPLICATED(dup(fd)); }
static int hook_dup2(int fd, int to) { DUPLICATED(dup2(fd, to)); }
static int hook_dup3(int fd, int to, int flags) { DUPLICATED(dup3(fd, to, flags)); }
static int hook_fcntl(int fd, int command, ...) {
    va_list more;
    va_start(more, command);
    long argument = va_arg(more, long);
    va_end(more);
    if (command != F_DUPFD && command != F_DUPFD_CLOEXEC) return fcntl(fd, command, argument);
    DUPLICATED(fcntl(fd, command, argument));
}

static int hook_closedir(DIR *folder) { /* makes no event */
    uint32_t in = folder ? watching() : 0;
    if (in) INSIDE(in, forgotten(dirfd(folder), in));
    return closedir(folder);
}
static DIR *hook_opendir(const char *path) {
    WATCHED(DIR *, , opendir(path),
            record(&call, OPENDIR, PATH_UNLESS(!returned, AT_FDCWD, path), -1, -1, -1, returned ? 0 : -1));
}
#define MOVED(operation, made) \
    WATCHED(ssize_t, , made, int64_t at = offset && !FAILED ? *offset - returned : -1; \
            record(&call, operation, file_of(fd, call.in), fd, at, (int64_t)n, returned))
static ssize_t hook_sendfile(int to, int fd, off_t *offset, size_t n) { MOVED(SENDFILE, sendfile(to, fd, offset, n)); }
static ssize_t hook_copy_file_range(int fd, off_t *offset, int to, off_t *to_offset, size_t n, unsigned flags) {
    MOVED(COPY_RANGE, copy_file_range(fd, offset, to, to_offset, n, flags));
}

/* ---- STDIO; the reads and writes that the C library makes for a stream are not recorded ---- */

static int64_t stream_began(FILE *stream, int64_t returned) {
    int64_t position = ftello(stream);
    return position < 0 ? -1 : position - returned;
}

static void stream_opened(const struct call *call, uint32_t file, FILE *returned) {
    int fd = returned ? fileno(returned) : -1;
    if (returned) refers(fd, call->in, file);
    record(call, FOPEN, file, fd, -1, -1, returned ? 0 : -1);
}
static FILE *hook_fopen(const char *path, const char *mode) {
    WATCHED(FILE *, , fopen(path, mode), stream_opened(&call, PATH_UNLESS(!returned, AT_FDCWD, path), returned));
}
static FILE *hook_freopen(const char *path, const char *mode, FILE *stream) {
    WATCHED(FILE *, INSIDE(call.in, fd_before = fileno(stream); file = forgotten(fd_before, call.in)), freopen(path, mode, stream),
            record(&call, FCLOSE, file, fd_before, -1, -1, 0);
            stream_opened(&call, path ? PATH_UNLESS(!returned, AT_FDCWD, path) : file, returned));
}
static FILE *hook_fdopen(int fd, const char *mode) {
    WATCHED(FILE *, , fdopen(fd, mode),
            record(&call, FDOPEN, file_of(fd, call.in), fd, -1, -1, returned ? 0 : -1));
}
#define STREAMED(name, operation, buffer)                                                                               \
    static size_t hook_##name(buffer, size_t size, size_t n, FILE *stream) {                                            \
        WATCHED(size_t, , name(data, size, n, stream),                                                                  \
                record(&call, operation, file_of(fileno(stream), call.in), fileno(stream),                              \
                       stream_began(stream, (int64_t)(returned * size)), (int64_t)(size * n), (int64_t)(returned * size))); \
    }
STREAMED(fread, FREAD, void *data)
STREAMED(fread_unlocked, FREAD, void *data)
STREAMED(fwrite, FWRITE, const void *data)
STREAMED(fwrite_unlocked, FWRITE, const void *data)
static size_t hook_fread_chk(void *to, size_t room, size_t size, size_t n, FILE *stream) {
    return size && n > room / size ? abort(), 0 : hook_fread(to, size, n, stream);
}
#define OF_STREAM(operation, offset, made) \
    WATCHED(int, , made, record(&call, operation, file_of(fileno(stream), call.in), fileno(stream), offset, -1, returned))
static int hook_fseeko(FILE *stream, off_t offset, int from) { OF_STREAM(FSEEK, offset, fseeko(stream, offset, from)); }
static int hook_fflush(FILE *stream) {
    if (!stream) return fflush(stream); /* NULL flushes all streams; the call belongs to no single file */
    OF_STREAM(FFLUSH, -1, fflush(stream));
}
static int hook_fclose(FILE *stream) {
    WATCHED(int, INSIDE(call.in, fd_before = fileno(stream); file = forgotten(fd_before, call.in)), fclose(stream),
            record(&call, FCLOSE, file, fd_before, -1, -1, returned));
}

/* A newly loaded module gets its hooks when this thread looks up a symbol, or at the next recorded call of this thread.
 * dlopen and dlsym find out their caller from the return address. Therefore the hook must end with these calls, so that
 * the compiler turns each call into a jump. */
#define UNTRACED __attribute__((no_sanitize("address", "thread")))
static void *(*volatile real_dlopen)(const char *, int); /* volatile, so that the compiler does not know the function */
UNTRACED static void *hook_dlopen(const char *path, int flags) {
    my.loaded = LOOKS;
    return real_dlopen(path, flags);
}

static void *(*volatile real_dlsym)(void *, const char *);
UNTRACED static void *hook_dlsym(void *handle, const char *name) {
    if (my.loaded) watching();
    return real_dlsym(handle, name);
}

/* A child of vfork uses the memory of this process until it calls exec, but has its own file descriptors. Therefore the
 * calls of the child must not be recorded. The child returns into the frame of the caller of vfork. Therefore the call
 * of vfork must be a jump as well. */
static pid_t (*volatile real_vfork)(void);
UNTRACED static pid_t hook_vfork(void) {
    my.vforked = 1;
    return real_vfork();
}

#define AS(name, function) {#name, (void *)hook_##function, NULL}
#define H(name) AS(name, name)
#define H64(name) H(name), AS(name##64, name) /* on 64-bit machines, name and name64 are the same function */
struct hook hooks[] = {
    H64(open), H64(openat), H64(creat), AS(__open_2, open_2), AS(__open64_2, open_2), AS(__openat_2, openat_2),
    AS(__openat64_2, openat_2), H(close), H(close_range), H(read), AS(__read_chk, read_chk), H(readv), H64(pread),
    AS(__pread_chk, pread_chk), AS(__pread64_chk, pread_chk), H64(preadv), H(preadv2), AS(preadv64v2, preadv2), H(write),
    H(writev), H64(pwrite), H64(pwritev), H(pwritev2), AS(pwritev64v2, pwritev2), H64(lseek), H(fsync), H(fdatasync),
    H64(stat), H64(lstat), H64(fstat), H64(fstatat), H(statx), H64(__xstat), H64(__lxstat), H64(__fxstat),
    H64(__fxstatat), H(access), H(faccessat), H(unlink), H(unlinkat), H(rename), H(renameat), H(renameat2), H64(mmap),
    H(dup), H(dup2), H(dup3), H64(fcntl), H(opendir), H(closedir), H64(sendfile), H(copy_file_range), H64(fopen),
    H64(freopen), H(fdopen), H(fread), H(fread_unlocked), AS(__fread_chk, fread_chk), H(fwrite), H(fwrite_unlocked),
    AS(fseek, fseeko), H64(fseeko), H(fflush), H(fclose), H(dlopen), H(dlsym), H(vfork),
};
const unsigned hook_count = sizeof hooks / sizeof *hooks;

/* ---- windows ---- */

/* The lock makes sure that a name that another thread is adding is complete in the child. A signal handler may call
 * fork while this thread is recording and may have the lock; then the lock must not be taken again. */
static void before_fork(void) { if (!my.recording) pthread_mutex_lock(&names_lock); }
static void after_fork(void) { if (!my.recording) pthread_mutex_unlock(&names_lock); }
/* After a fork, the calls of the child do not belong to the window of the parent, so the child has no open window. */
static void in_child(void) {
    atomic_store(&open_window, 0);
    atomic_store(&now_in.gate, 0);
    pthread_mutex_init(&names_lock, NULL);
    forget_lock();
    memset(&my, 0, sizeof my);
}

int profiler_attach(struct attached *answer) {
    if (!descriptors) {
        _Atomic uint64_t *room = room_of(DESCRIPTORS * sizeof *room);
        if (!room || !names_begin()) return ENOMEM;
        real_dlopen = dlopen, real_dlsym = dlsym, real_vfork = vfork, descriptors = room;
        pthread_atfork(before_fork, after_fork, in_child);
    }
    int error = scan(answer, 1);
    return error == EAGAIN ? 0 : error; /* EAGAIN: another thread is loading a module; the next scan patches it */
}

int profiler_start(const struct window *asked) {
    size_t bytes = 0;
    if (atomic_load(&open_window) || (uint32_t)atomic_load(&now_in.gate)) return EBUSY;
    window = *asked;
    if (asked->only) {
        while (asked->only[bytes]) bytes += strlen(asked->only + bytes) + 1;
        if (bytes + 1 > sizeof only) return E2BIG;
        memcpy(only, asked->only, bytes + 1);
        window.only = only;
    }
    window_files = name_bytes = 0, owner = getpid(), last_window++;
    last_window += !last_window;
    now_in.events = now_in.dropped = now_in.read_bytes = 0;
    mappings_before = atomic_load(&mappings_bytes);
    started = now();
    atomic_store(&now_in.gate, (uint64_t)last_window << 32);
    atomic_store(&open_window, last_window);
    return 0;
}

int profiler_stop(struct totals *answer) {
    uint64_t gate = atomic_load(&now_in.gate);
    atomic_store(&open_window, 0);
    while (!atomic_compare_exchange_weak(&now_in.gate, &gate, (uint32_t)gate)) {}
    /* Read the time after the gate is closed: every recorded call ended before this time. */
    answer->ended = now(), answer->started = started;
    for (int tries = 0; atomic_load(&now_in.gate) && tries < 40000; tries++)
        if (tries < 100) sched_yield();
        else nanosleep(&(struct timespec){0, 50000}, NULL);
    uint64_t events = atomic_load(&now_in.events);
    answer->events = events < window.event_capacity ? events : window.event_capacity;
    answer->dropped = atomic_load(&now_in.dropped), answer->name_bytes = name_bytes;
    answer->read_bytes = atomic_load(&now_in.read_bytes) + atomic_load(&mappings_bytes) - mappings_before;
    if (atomic_load(&now_in.gate)) return EAGAIN;
    forget_names();
    return 0;
}
