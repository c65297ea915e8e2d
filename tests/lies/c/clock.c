/* A clock that lies: LIES_CLOCK=slow lets the monotonic one go at half its speed from the process's first look,
   =jump sets the day back by an hour a second after that. */

#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long long began;

/* A sleep until a moment of the slow clock; the kernel knows the right one alone, and would not let it sleep at all. */
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    const char *how = getenv("LIES_CLOCK");
    struct timespec real = *until;
    if (how && strcmp(how, "slow") == 0 && clock == CLOCK_MONOTONIC && flags == TIMER_ABSTIME && began) {
        long long ns = began + 2 * (until->tv_sec * 1000000000LL + until->tv_nsec - began);
        real.tv_sec = ns / 1000000000LL, real.tv_nsec = ns % 1000000000LL;
    }
    return syscall(SYS_clock_nanosleep, clock, flags, &real, left) ? errno : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
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
