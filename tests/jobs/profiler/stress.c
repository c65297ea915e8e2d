/* Eight threads read, write, open and close while windows open and end and slots are patched and given back; run under
 * a sanitizer. Exits with 0 if every answer was right; prints how many events there were. */
#define _GNU_SOURCE
#include "hooks.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EVENTS = 1 << 16, FILES = 64, ROUNDS = 60 };
static atomic_int stop, wrong;
static const char *folder;

static void *work(void *place) {
    char path[4096], bytes[64];
    snprintf(path, sizeof path, "%s/%ld", folder, (long)place % 5);
    for (int n = 0; !stop; n++) {
        int fd = open(path, O_RDWR | O_CREAT, 0600);
        wrong += fd < 0 || pwrite(fd, "0123456789", 10, 0) != 10 || read(fd, bytes, 10) != 10 || pread(fd, bytes, 4, 3) != 4;
        wrong += memcmp(bytes, "3456", 4) != 0 || close(fd) || access(path, R_OK);
        FILE *stream = n % 8 ? NULL : fopen(path, "r");
        if (stream) wrong += fread(bytes, 1, 5, stream) != 5 || fclose(stream);
    }
    return NULL;
}

int main(int count, char **words) {
    pthread_t threads[8];
    uint64_t events = 0;
    if (count != 2) return 2;
    folder = words[1];
    for (long i = 0; i < 8; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int round = 0; round < ROUNDS; round++) {
        struct attached attached;
        struct totals totals = {0};
        int traces = round % 2;
        size_t bytes = traces ? EVENTS * sizeof(struct event) : FILES * sizeof(struct counters);
        void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *names = calloc(1, 1 << 16);
        struct window window = {traces ? room : NULL, EVENTS, traces ? NULL : room, FILES, names, 1 << 16, NULL};
        wrong += profiler_attach(&attached) || attached.slots < 8 || profiler_start(&window);
        usleep(3000);
        if (round % 10 == 0 && !fork()) _exit(open(folder, O_RDONLY) < 0);
        wrong += profiler_stop(&totals);
        struct counters *counted = calloc(FILES, sizeof *counted);
        profiler_count(traces ? room : NULL, totals.events, counted, FILES);
        events += totals.events;
        if (round % 3) wrong += profiler_detach();
        munmap(room, bytes), free(names), free(counted);
    }
    stop = 1;
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    for (int status; wait(&status) > 0;) wrong += status != 0;
    printf("%lu events, %d wrong\n", (unsigned long)events, (int)wrong);
    return wrong != 0 || !events;
}
