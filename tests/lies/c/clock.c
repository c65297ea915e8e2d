/* A clock that lies: LIES_CLOCK=slow lets the monotonic one go at half its speed from the process's first look,
   =jump sets the day back by an hour a second after that. */

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static long long began;
    const char *how = getenv("LIES_CLOCK");
    struct timespec monotonic;
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (failed || !how) return failed;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &monotonic);
    long long ns = monotonic.tv_sec * 1000000000LL + monotonic.tv_nsec;
    if (!began) began = ns;
    if (clock == CLOCK_MONOTONIC && strcmp(how, "slow") == 0) ns = began + (ns - began) / 2;
    else if (clock == CLOCK_REALTIME && strcmp(how, "jump") == 0 && ns - began > 1000000000LL)
        ns = (now->tv_sec - 3600) * 1000000000LL + now->tv_nsec;
    else return 0;
    now->tv_sec = ns / 1000000000LL, now->tv_nsec = ns % 1000000000LL;
    return 0;
}
