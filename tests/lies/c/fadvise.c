/* Advice to the kernel does nothing, and is said to have been taken; the file in LIES_CALLS grows by a byte a call. */

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int swallow(void) {
    const char *name = getenv("LIES_CALLS");
    int fd = name ? open(name, O_WRONLY | O_APPEND) : -1;
    if (fd != -1) {
        if (write(fd, "x", 1) != 1) abort();
        close(fd);
    }
    return 0;
}

int posix_fadvise(int fd, off_t from, off_t length, int advice) {
    (void)fd, (void)from, (void)length, (void)advice;
    return swallow();
}

int posix_fadvise64(int fd, off_t from, off_t length, int advice) {
    (void)fd, (void)from, (void)length, (void)advice;
    return swallow();
}
