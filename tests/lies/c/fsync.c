/* What makes data durable does nothing, and O_DIRECT is refused; the file in LIES_CALLS grows by a byte a call. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

typedef int (*opening)(const char *, int, ...);

static int really_open(const char *path, int flags, int mode) {
    static opening real;
    if (!real) real = (opening)dlsym(RTLD_NEXT, "open64");
    if (flags & O_DIRECT) {
        errno = EINVAL;
        return -1;
    }
    return real(path, flags, mode);
}

static int swallow(void) {
    const char *name = getenv("LIES_CALLS");
    int fd = name ? really_open(name, O_WRONLY | O_APPEND, 0) : -1;
    if (fd != -1) {
        if (write(fd, "x", 1) != 1) abort();
        close(fd);
    }
    return 0;
}

#define OPEN(name)                                 \
    int name(const char *path, int flags, ...) {   \
        va_list more;                              \
        va_start(more, flags);                     \
        int mode = va_arg(more, int);              \
        va_end(more);                              \
        return really_open(path, flags, mode);     \
    }
OPEN(open)
OPEN(open64)

#define OPEN_AT(name)                                                             \
    int name(int folder, const char *path, int flags, ...) {                      \
        static int (*real)(int, const char *, int, ...);                          \
        if (!real) real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        va_list more;                                                             \
        va_start(more, flags);                                                    \
        int mode = va_arg(more, int);                                             \
        va_end(more);                                                             \
        if (flags & O_DIRECT) {                                                   \
            errno = EINVAL;                                                       \
            return -1;                                                            \
        }                                                                         \
        return real(folder, path, flags, mode);                                   \
    }
OPEN_AT(openat)
OPEN_AT(openat64)

int fsync(int fd) { return (void)fd, swallow(); }
int fdatasync(int fd) { return (void)fd, swallow(); }
int syncfs(int fd) { return (void)fd, swallow(); }
void sync(void) { swallow(); }
int sync_file_range(int fd, off64_t from, off64_t length, unsigned int flags) {
    return (void)fd, (void)from, (void)length, (void)flags, swallow();
}
