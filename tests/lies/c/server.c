/* server MODE SOURCE COUNTS MOUNTPOINT [FUSE OPTIONS]: a file system that gives away the files of SOURCE.

   honest   reads each time from SOURCE, past the page cache where it can
   memory   reads a file once, and from its own memory ever after
   short    ends every fourth file at half its length
   stale    goes on serving each file as it was when it was first read
   sizes    says that every file is three times as long as it is
   block    as memory, with no page cache of the kernel above it: what an array does behind a wire

   COUNTS holds two numbers: bytes given away, bytes read from SOURCE. */

#define _GNU_SOURCE
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct kept { char *path; char *bytes; off_t length; struct kept *next; };

static const char *mode, *source;
static volatile uint64_t *counts;
static struct kept *all;

static int is(const char *name) { return strcmp(mode, name) == 0; }

static void full(char *to, const char *path) { snprintf(to, 4096, "%s%s", source, path); }

static int lie_getattr(const char *path, struct stat *st, struct fuse_file_info *info) {
    char name[4096];
    (void)info;
    full(name, path);
    if (lstat(name, st) == -1) return -errno;
    if (is("sizes") && S_ISREG(st->st_mode)) st->st_size *= 3;
    return 0;
}

static int lie_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t at, struct fuse_file_info *info,
                       enum fuse_readdir_flags flags) {
    char name[4096];
    struct dirent *entry;
    (void)at, (void)info, (void)flags;
    full(name, path);
    DIR *folder = opendir(name);
    if (!folder) return -errno;
    while ((entry = readdir(folder))) fill(buffer, entry->d_name, NULL, 0, 0);
    closedir(folder);
    return 0;
}

static int lie_open(const char *path, struct fuse_file_info *info) {
    char name[4096];
    full(name, path);
    int fd = open(name, is("block") ? O_RDONLY : info->flags & ~(O_APPEND | O_TRUNC), 0);
    if (fd == -1) return -errno;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    info->fh = (uint64_t)fd;
    info->direct_io = is("block");
    return 0;
}

static int lie_create(const char *path, mode_t permissions, struct fuse_file_info *info) {
    char name[4096];
    full(name, path);
    int fd = open(name, O_RDWR | O_CREAT, permissions);
    if (fd == -1) return -errno;
    info->fh = (uint64_t)fd;
    return 0;
}

static struct kept *whole(const char *path, int fd) {
    struct kept *file;
    for (file = all; file; file = file->next)
        if (strcmp(file->path, path) == 0) return file;
    file = malloc(sizeof *file);
    if (!file) abort();
    file->path = strdup(path), file->length = lseek(fd, 0, SEEK_END), file->next = all;
    file->bytes = malloc((size_t)file->length + 1);
    if (!file->bytes || pread(fd, file->bytes, (size_t)file->length, 0) != file->length) abort();
    counts[1] += (uint64_t)file->length;
    return all = file;
}

static int lie_read(const char *path, char *buffer, size_t size, off_t at, struct fuse_file_info *info) {
    int fd = (int)info->fh, keeps = is("memory") || is("stale") || is("block");
    struct stat st;
    if (fstat(fd, &st) == -1) return -errno;
    struct kept *file = keeps ? whole(path, fd) : NULL;
    off_t end = keeps ? file->length : st.st_size;
    if (is("short") && st.st_ino % 4 == 0) end /= 2;
    if (at >= end) return 0;
    if ((off_t)size > end - at) size = (size_t)(end - at);
    if (keeps) {
        memcpy(buffer, file->bytes + at, size);
    } else {
        ssize_t got = pread(fd, buffer, size, at);
        if (got == -1) return -errno;
        size = (size_t)got;
        counts[1] += size;
    }
    counts[0] += size;
    return (int)size;
}

static int lie_write(const char *path, const char *buffer, size_t size, off_t at, struct fuse_file_info *info) {
    (void)path;
    ssize_t done = pwrite((int)info->fh, buffer, size, at);
    return done == -1 ? -errno : (int)done;
}

static int lie_release(const char *path, struct fuse_file_info *info) {
    (void)path;
    close((int)info->fh);
    return 0;
}

static const struct fuse_operations operations = {.getattr = lie_getattr,
                                                  .readdir = lie_readdir,
                                                  .open = lie_open,
                                                  .create = lie_create,
                                                  .read = lie_read,
                                                  .write = lie_write,
                                                  .release = lie_release};

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    mode = argv[1], source = argv[2];
    int fd = open(argv[3], O_RDWR);
    if (fd == -1) return 2;
    counts = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (counts == MAP_FAILED) return 2;
    argv[3] = argv[0];
    return fuse_main(argc - 3, argv + 3, &operations, NULL);
}
