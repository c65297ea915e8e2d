/* A storage that behaves: one file behind FUSE whose requests take the time that a disk, a flash device or a file
 * server would need. A loop device with direct I/O on that file is the block device of an emulated storage.
 *
 *     storage_model FOLDER IMAGE KEY=VALUE...
 *
 * mounts FOLDER, goes into the background and serves three files until it is unmounted:
 *
 *     device  the bytes of IMAGE; each request is answered when the model says that it is done (root only)
 *     state   one line of JSON: the model's parameters, and what it did since it was started
 *     faults  what is to go wrong, as KEY VALUE lines; write them to change them (root only)
 *
 * Bytes move at once and for real; only the answer waits. So what is read is right whatever the model does, and a
 * write that was answered is in IMAGE. It speaks the kernel's protocol itself (linux/fuse.h): a library would bring
 * a hundred calls of which eleven are needed. One thread does it all, so that a request costs two wake-ups and no lock.
 * All times are of CLOCK_MONOTONIC, in nanoseconds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef int64_t ns;
static const ns PAUSE = 2000000; /* of a reader within a file, at most: who asks later has opened another one */
enum { NS = 1000000000, LARGEST = 1 << 20, ROOM = LARGEST + 4096, STATE_BYTES = 4096, STREAMS = 64, ARMS = 4096, CHANNELS = 256 };
enum { ROOT = FUSE_ROOT_ID, DEVICE, STATE, FAULTS };
static const char *const NAMES[] = {[DEVICE] = "device", [STATE] = "state", [FAULTS] = "faults"};

/* --- What the command line says ------------------------------------------------------------------------------- */

static struct {
    double read_mb_per_s, write_mb_per_s; /* rates of the medium; of a server, of its client's way to it */
    double path_us;                       /* what the way here and back costs without a model: taken off each answer */
    double seek_track_ms, seek_average_ms, rpm, capacity_gb; /* of a disk, or of each disk of a server */
    double queue, cache_mb, interface_mb_per_s;              /* of a disk */
    double read_us, write_us, channels;                      /* of flash */
    double round_trip_us, metadata_us, osts, disks, stripe_mib, disk_mb_per_s, read_ahead_mb; /* of a server */
} P;
static struct { double eio_every, eio_from, eio_to, spike_every, spike_ms, hang, disconnect; } F;

struct key { const char *name; double *value; };
#define KEY(s, n) {#n, &s.n}
static const struct key PARAMETERS[] = {
    KEY(P, read_mb_per_s), KEY(P, write_mb_per_s), KEY(P, path_us), KEY(P, seek_track_ms), KEY(P, seek_average_ms),
    KEY(P, rpm), KEY(P, capacity_gb), KEY(P, queue), KEY(P, cache_mb), KEY(P, interface_mb_per_s), KEY(P, read_us),
    KEY(P, write_us), KEY(P, channels), KEY(P, round_trip_us), KEY(P, metadata_us), KEY(P, osts), KEY(P, disks),
    KEY(P, stripe_mib), KEY(P, disk_mb_per_s), KEY(P, read_ahead_mb), {NULL, NULL}};
/* eio_every: each Nth request of data fails | eio_from, eio_to: bytes that cannot be read or written | spike_every,
 * spike_ms: each Nth request takes so much longer | hang: nothing is answered | disconnect: the server ends. */
static const struct key FAULT_KEYS[] = {KEY(F, eio_every), KEY(F, eio_from), KEY(F, eio_to), KEY(F, spike_every),
                                        KEY(F, spike_ms), KEY(F, hang), KEY(F, disconnect), {NULL, NULL}};

static bool set(const struct key *keys, const char *name, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    for (; keys->name; keys++)
        if (!strcmp(keys->name, name) && end != text && !*end && value >= 0 && value <= 1e15)
            return *keys->value = value, true;
    return false;
}

/* --- Requests, and what was done ------------------------------------------------------------------------------ */

struct request {
    struct request *next;
    uint64_t unique, off;
    uint32_t len;
    enum { READ, WRITE, FLUSH, DESTAGE } kind; /* DESTAGE: of a disk alone, which moves a write from cache to platters */
    int error;
    ns asked;   /* when it came */
    ns ahead;   /* when the client of a server asked for it, if that was before the program did; else 0 */
    unsigned stream; /* of a server's read: which it continues, or begins */
    unsigned order, left; /* of a DESTAGE: its number; of a FLUSH: the last such before it, how many are left to do */
    ns due;
    void (*then)(struct request *); /* what comes when it is due */
};

static struct { uint64_t reads, writes, flushes, spoiled, read_bytes, written_bytes; double busy_s, queue_s, late_s; } did;
static unsigned in_flight;
static ns changed; /* when in_flight changed */
static int fuse_fd, image_fd;
static uint64_t image_bytes;
static const char *image, *kind; /* image: its bytes, to be read */

static ns now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (ns)t.tv_sec * NS + t.tv_nsec;
}

static ns later(ns a, ns b) { return a > b ? a : b; }
static ns transfer(uint64_t bytes, double mb_per_s) { return (ns)((double)bytes * 1e3 / mb_per_s); }

static void count(int change)
{
    ns t = now();
    did.busy_s += in_flight ? (double)(t - changed) / NS : 0;
    did.queue_s += (double)in_flight * (double)(t - changed) / NS;
    in_flight += (unsigned)change;
    changed = t;
}

/* A heap of the requests for which something comes at a known time, the earliest first. */
static struct request *heap[1 << 14];
static unsigned waiting;

static void at_time(struct request *r, ns due, void (*then)(struct request *))
{
    unsigned i = waiting++;
    r->due = due, r->then = then;
    for (; i && heap[(i - 1) / 2]->due > due; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = r;
}

static struct request *take_first(void)
{
    struct request *first = heap[0], *last = heap[--waiting];
    unsigned i = 0, child;
    for (; (child = 2 * i + 1) < waiting; i = child) {
        child += child + 1 < waiting && heap[child + 1]->due < heap[child]->due;
        if (heap[child]->due >= last->due)
            break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return first;
}

/* --- Answers -------------------------------------------------------------------------------------------------- */

static ssize_t answer(uint64_t unique, int error, const void *data, size_t bytes)
{
    struct fuse_out_header head = {.len = (uint32_t)(sizeof head + bytes), .error = -error, .unique = unique};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)(uintptr_t)data, bytes}};
    return writev(fuse_fd, parts, bytes ? 2 : 1); /* ENOENT: who asked was killed meanwhile */
}

static void reply(struct request *r)
{
    struct fuse_write_out written = {.size = r->len};
    did.late_s += (double)(now() - r->due) / NS;
    count(-1);
    if (r->error || r->kind == FLUSH)
        answer(r->unique, r->error, NULL, 0);
    else if (r->kind == WRITE)
        answer(r->unique, 0, &written, sizeof written);
    else
        answer(r->unique, 0, image + r->off, r->len); /* EIO, by the kernel, if what lies beneath does not give them */
    free(r);
}

/* The client is to have the answer at that time: it is sent earlier by what the way takes. */
static void reply_at(struct request *r, ns due) { at_time(r, due - (ns)(1e3 * P.path_us), reply); }

/* --- A hard disk: one arm ------------------------------------------------------------------------------------- */

static struct request *pending, *cache_waits, *flushes; /* in the order of their arrival */
static uint64_t head_end = 1, dirty; /* byte after the last one under the head, at first of no request; bytes cached */
static unsigned stored, dirty_writes;                 /* writes that came into the cache; those that are in it */
static ns arm_free, ahead_until; /* until when the head reads what comes behind the last read, cached as it comes */
static bool arm_busy;

static void was_read(struct request *), destaged(struct request *);

static ns turn_ns(void) { return (ns)(60e9 / P.rpm); }
static double track_bytes(void) { return P.read_mb_per_s * 60e6 / P.rpm; } /* that many pass the head in a turn */

/* Average over random pairs: E[sqrt(|x - y|)] = 8/15, so that this has the data sheet's average. */
static ns seek_ns(double distance_gb)
{
    return (ns)(1e6 * (P.seek_track_ms + (P.seek_average_ms - P.seek_track_ms) * sqrt(distance_gb / P.capacity_gb) * 15 / 8));
}

/* How long the arm needs to the first byte of a request, from `at`: the way to its track, then what is left of a turn.
 * What continues the last request is under the head; of a write only as long as the head has not gone on. */
static ns position(const struct request *r, ns at)
{
    double from = floor((double)head_end / track_bytes()), to = floor((double)r->off / track_bytes());
    ns there, angle, turn = turn_ns();
    if (r->off == head_end && (r->kind == READ || at <= arm_free))
        return 0;
    there = from == to ? 0 : seek_ns(fabs(to - from) * track_bytes() / 1e9);
    angle = (ns)(((double)r->off / track_bytes() - to) * (double)turn);
    return there + ((angle - (at + there)) % turn + turn) % turn;
}

/* The request whose first byte the arm reaches first: reads before writes that were answered already, unless these fill
 * the cache or somebody waits for a flush; and the oldest read, if it waited for as many turns as the queue is long. */
static struct request **next_for_arm(ns at)
{
    bool must = flushes || cache_waits;
    struct request **each, **best = NULL, *oldest = pending;
    ns least = INT64_MAX;
    unsigned seen = 0;
    while (oldest && oldest->kind != READ)
        oldest = oldest->next;
    for (each = &pending; *each && seen < P.queue; each = &(*each)->next) {
        struct request *r = *each;
        ns start = later(at, r->asked), length = start - at + position(r, start);
        if (r == oldest && at - r->asked > (ns)P.queue * turn_ns())
            return each;
        if (r->kind == DESTAGE && oldest && !must)
            continue;
        seen++;
        if (length < least)
            least = length, best = each;
    }
    return best;
}

/* Let the arm, which is free from `at`, take its next request. */
static void move_arm(ns at)
{
    struct request **place = next_for_arm(at), *r;
    arm_busy = place != NULL;
    if (!place)
        return;
    r = *place;
    *place = r->next;
    ns start = later(at, r->asked), way = position(r, start);
    ns length = transfer(r->len, r->kind == READ ? P.read_mb_per_s : P.write_mb_per_s);
    if (r->off == head_end && r->kind == READ) {
        /* The head went on reading into the cache, as far as that reaches. */
        ahead_until = later(ahead_until, start - transfer((uint64_t)(P.cache_mb * 1e6), P.read_mb_per_s)) + length;
        arm_free = later(ahead_until, start + transfer(r->len, P.interface_mb_per_s));
    } else
        ahead_until = arm_free = start + way + length;
    head_end = r->off + r->len;
    if (r->kind == READ)
        at_time(r, arm_free - (ns)(1e3 * P.path_us), was_read);
    else
        at_time(r, arm_free, destaged);
}

static struct request *made(const struct request *like)
{
    struct request *r = malloc(sizeof *r);
    if (!r)
        _exit(1);
    return *r = *like, r;
}

static void append(struct request **list, struct request *r)
{
    while (*list)
        list = &(*list)->next;
    r->next = NULL;
    *list = r;
}

/* Take a write into the cache: answered when it came over the wire; its place on the platters is the arm's business. */
static void into_cache(struct request *r, ns at)
{
    struct request *destage = made(r);
    destage->kind = DESTAGE;
    destage->asked = at;
    destage->order = ++stored;
    dirty_writes++;
    dirty += r->len;
    append(&pending, destage);
    reply_at(r, at + transfer(r->len, P.interface_mb_per_s));
}

static bool has_room(const struct request *r) { return dirty + r->len <= P.cache_mb * 1e6 || !dirty; }

static void was_read(struct request *r)
{
    reply(r);
    move_arm(arm_free);
}

static void destaged(struct request *r)
{
    struct request **each = &flushes, *one;
    dirty -= r->len;
    dirty_writes--;
    while ((one = *each)) {
        one->left -= r->order <= one->order;
        if (one->left)
            each = &one->next;
        else
            *each = one->next, reply_at(one, arm_free);
    }
    while (cache_waits && has_room(cache_waits))
        one = cache_waits, cache_waits = one->next, into_cache(one, arm_free);
    free(r);
    move_arm(arm_free);
}

static void disk_submit(struct request *r, ns at)
{
    if (r->kind == FLUSH && dirty_writes)
        r->order = stored, r->left = dirty_writes, append(&flushes, r);
    else if (r->kind == FLUSH)
        reply_at(r, at);
    else if (r->kind == READ)
        append(&pending, r);
    else if (has_room(r) && !cache_waits)
        into_cache(r, at);
    else
        append(&cache_waits, r);
    if (!arm_busy)
        move_arm(later(at, arm_free));
}

/* --- Flash: channels that work at once, one bus --------------------------------------------------------------- */

static ns channel_free[CHANNELS], bus_free[2];
static struct { uint64_t end; ns ready, asked, answered; } streams[STREAMS]; /* files that a server's client reads */

/* Flash has one bus for both ways, the client of a server one for each. */
static void over_bus(struct request *r)
{
    unsigned bus = r->kind == READ && P.osts;
    ns length = transfer(r->len, r->kind == READ ? P.read_mb_per_s : P.write_mb_per_s);
    bus_free[bus] = later(r->ahead ? r->ahead : r->due, bus_free[bus]) + length;
    ns answered = later(r->due, bus_free[bus]);
    if (bus)
        streams[r->stream].answered = answered;
    reply_at(r, answered);
}

static void flash_submit(struct request *r, ns at)
{
    unsigned best = 0;
    for (unsigned i = 1; i < (unsigned)P.channels; i++)
        if (channel_free[i] < channel_free[best])
            best = i;
    ns ready = later(at, channel_free[best]) + (ns)(1e3 * (r->kind == READ ? P.read_us : P.write_us));
    channel_free[best] = ready;
    at_time(r, ready, over_bus);
}

/* --- A server of a parallel file system: object storage targets with disks of their own ------------------------ */

static ns disk_free[ARMS];
static unsigned oldest;

static bool continues(const struct request *r, unsigned i)
{
    return streams[i].end == r->off && (r->asked - streams[i].asked < PAUSE || llabs(r->asked - streams[i].answered) < PAUSE);
}

static double chance(void) /* xorshift64*: the same in each life of a server */
{
    static uint64_t x = 88172645463325252u;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    return (double)((x * 2685821657736338717u) >> 11) / 9007199254740992.0;
}

/* A read that soon continues an earlier one was read ahead by the client: the same place later is the beginning of
 * another file, for here nobody knows where files end. Any other read is of a file that was opened (a call to
 * the metadata server), and lies on a disk that others moved meanwhile: an average seek, and any part of a turn. */
static void server_submit(struct request *r, ns at)
{
    ns ready = at + (ns)(1e3 * P.round_trip_us);
    if (r->kind == READ) {
        uint64_t stripe = (uint64_t)(P.stripe_mib * (1 << 20)), osts = (uint64_t)P.osts;
        unsigned i = 0, arm;
        while (i < STREAMS && !continues(r, i))
            i++;
        if (i == STREAMS) {
            i = oldest++ % STREAMS;
            arm = (unsigned)(r->off / stripe % osts * (uint64_t)P.disks + (uint64_t)(chance() * P.disks));
            ready = later(ready + (ns)(1e3 * P.metadata_us), disk_free[arm]);
            ready += (ns)(1e6 * P.seek_average_ms + chance() * (double)turn_ns()) + transfer(r->len, P.disk_mb_per_s);
            streams[i].ready = disk_free[arm] = ready;
        } else
            r->ahead = later(streams[i].ready, ready - transfer((uint64_t)(P.read_ahead_mb * 1e6), P.read_mb_per_s)),
            ready = later(ready, streams[i].ready);
        streams[i].end = r->off + r->len, streams[i].asked = r->asked;
        r->stream = i;
    }
    at_time(r, ready, over_bus);
}

static void (*submit)(struct request *, ns);

/* Answer what is due; returns the nanoseconds until the next request is, -1 for none. */
static ns answer_due(void)
{
    while (waiting && !F.hang) {
        ns late = now() - heap[0]->due;
        if (late < 0)
            return -late;
        struct request *r = take_first();
        r->then(r);
    }
    return -1;
}

/* --- Faults --------------------------------------------------------------------------------------------------- */

/* Give a request of data what the faults have for it; returns how much longer it takes. */
static ns spoil(struct request *r)
{
    static uint64_t data;
    if (r->kind == FLUSH)
        return 0;
    data++;
    uint64_t fails = (uint64_t)F.eio_every, waits = (uint64_t)F.spike_every;
    if ((fails && data % fails == 0) || ((double)r->off < F.eio_to && (double)(r->off + r->len) > F.eio_from))
        r->error = EIO;
    ns longer = waits && data % waits == 0 ? (ns)(1e6 * F.spike_ms) : 0;
    did.spoiled += r->error || longer;
    return longer;
}

/* Lines of KEY VALUE: all of them, or none of them. */
static int change_faults(char *text)
{
    char *rest, *line, name[32], value[32];
    __typeof__(F) before = F;
    bool fine = true;
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        fine &= sscanf(line, "%31s %31s", name, value) == 2 && set(FAULT_KEYS, name, value);
    if (!fine)
        F = before;
    if (F.disconnect)
        _exit(0); /* the kernel answers what is open: the connection is gone */
    return fine ? 0 : EINVAL;
}

/* --- The files ------------------------------------------------------------------------------------------------ */

static size_t print(char *text, size_t room, const struct key *keys, const char *format)
{
    size_t used = 0;
    for (; keys->name; keys++)
        used += (size_t)snprintf(text + used, room - used, used ? format : format + 2, keys->name, *keys->value);
    return used;
}

static size_t show(uint64_t node, char *text, size_t room)
{
    char parameters[2048], faults[512];
    struct timespec cpu;
    size_t used;
    count(0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    print(parameters, sizeof parameters, PARAMETERS, ", \"%s\": %.10g");
    print(faults, sizeof faults, FAULT_KEYS, ", \"%s\": %.10g");
    used = (size_t)snprintf(
        text, room,
        "{\"kind\": \"%s\", \"parameters\": {%s}, \"faults\": {%s}, \"pid\": %d, \"reads\": %lu, \"writes\": %lu,"
        " \"flushes\": %lu, \"spoiled\": %lu, \"read_bytes\": %lu, \"written_bytes\": %lu, \"in_flight\": %u, \"busy_s\": %.6f,"
        " \"queue_s\": %.6f, \"late_s\": %.6f, \"cpu_s\": %.6f}\n",
        kind, parameters, faults, getpid(), did.reads, did.writes, did.flushes, did.spoiled, did.read_bytes, did.written_bytes,
        in_flight, did.busy_s, did.queue_s, did.late_s, (double)cpu.tv_sec + (double)cpu.tv_nsec / NS);
    if (node == FAULTS) {
        used = 0;
        for (const struct key *each = FAULT_KEYS; each->name; each++)
            used += (size_t)snprintf(text + used, room - used, "%s %.10g\n", each->name, *each->value);
        return used;
    }
    /* Always as long: who reads on at the end of what he got finds the end, and not the end of a longer text. */
    memset(text + used - 1, ' ', STATE_BYTES - used);
    text[STATE_BYTES - 1] = '\n';
    return STATE_BYTES;
}

static struct fuse_attr attributes(uint64_t node)
{
    static const uint32_t modes[] = {[ROOT] = S_IFDIR | 0755, [DEVICE] = S_IFREG | 0600, [STATE] = S_IFREG | 0444,
                                     [FAULTS] = S_IFREG | 0600};
    return (struct fuse_attr){.ino = node, .size = node == DEVICE ? image_bytes : 0, .blocks = node == DEVICE ? image_bytes / 512 : 0,
                              .mode = modes[node], .nlink = 1, .blksize = 4096};
}

static size_t list(char *text, size_t room, uint64_t from)
{
    size_t used = 0;
    for (uint64_t node = DEVICE + from; node <= FAULTS; node++) {
        struct fuse_dirent entry = {.ino = node, .off = node - ROOT, .namelen = (uint32_t)strlen(NAMES[node]), .type = S_IFREG >> 12};
        if (used + FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + entry.namelen) > room)
            break;
        memcpy(text + used, &entry, FUSE_NAME_OFFSET);
        memcpy(text + used + FUSE_NAME_OFFSET, NAMES[node], entry.namelen);
        used += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + entry.namelen);
    }
    return used;
}

static void submit_late(struct request *r) { submit(r, r->due); }

/* How much of what is asked for lies on the device: the kernel lets through what is asked for with O_DIRECT. */
static uint32_t within(uint64_t off, uint32_t len)
{
    return off >= image_bytes ? 0 : image_bytes - off < len ? (uint32_t)(image_bytes - off) : len;
}

/* Hand a request of the device to the model; `data` are the bytes of a write, which move now. */
static void begin(const struct fuse_in_header *in, int request, uint64_t off, uint32_t asked, const char *data)
{
    struct request *r = made(&(struct request){.unique = in->unique, .kind = request, .off = off, .asked = now()});
    r->len = within(off, asked);
    count(1);
    *(request == READ ? &did.reads : request == WRITE ? &did.writes : &did.flushes) += 1;
    *(request == READ ? &did.read_bytes : &did.written_bytes) += r->len;
    ns longer = spoil(r);
    if (request == READ)
        posix_fadvise(image_fd, (off_t)off, r->len, POSIX_FADV_WILLNEED); /* while it waits */
    if (request == WRITE && !r->error) {
        ssize_t moved = pwrite(image_fd, data, r->len, (off_t)off);
        r->error = moved < 0 ? errno : moved < asked ? ENOSPC : 0;
    }
    if (r->error)
        reply_at(r, r->asked);
    else if (longer)
        at_time(r, r->asked += longer, submit_late);
    else
        submit(r, r->asked);
}

static void serve(const struct fuse_in_header *in, char *body)
{
    static char text[8192];
    uint64_t node = in->nodeid >= ROOT && in->nodeid <= FAULTS ? in->nodeid : ROOT;
    switch (in->opcode) {
    case FUSE_INIT: {
        const struct fuse_init_in *asked = (void *)body;
        struct fuse_init_out out = {
            .major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_readahead = LARGEST,
            .flags = asked->flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_ASYNC_DIO),
            .max_background = 256, .congestion_threshold = 256, .max_write = LARGEST, .time_gran = 1,
            .max_pages = LARGEST / 4096};
        return (void)answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_LOOKUP:
        for (node = DEVICE; node <= FAULTS; node++)
            if (!strcmp(NAMES[node], body)) {
                struct fuse_entry_out out = {.nodeid = node, .entry_valid = 3600, .attr_valid = 3600, .attr = attributes(node)};
                return (void)answer(in->unique, 0, &out, sizeof out);
            }
        return (void)answer(in->unique, ENOENT, NULL, 0);
    case FUSE_GETATTR:
    case FUSE_SETATTR: {
        struct fuse_attr_out out = {.attr_valid = 3600, .attr = attributes(node)};
        return (void)answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        struct fuse_open_out out = {.open_flags = node == STATE || node == FAULTS ? FOPEN_DIRECT_IO : 0};
        return (void)answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_READDIR: {
        const struct fuse_read_in *asked = (void *)body;
        return (void)answer(in->unique, 0, text, list(text, asked->size < sizeof text ? asked->size : sizeof text, asked->offset));
    }
    case FUSE_READ: {
        const struct fuse_read_in *asked = (void *)body;
        if (node == DEVICE)
            return begin(in, READ, asked->offset, asked->size, NULL);
        size_t all = show(node, text, sizeof text), from = asked->offset < all ? asked->offset : all;
        return (void)answer(in->unique, 0, text + from, all - from < asked->size ? all - from : asked->size);
    }
    case FUSE_WRITE: {
        const struct fuse_write_in *asked = (void *)body;
        struct fuse_write_out out = {.size = asked->size};
        if (node == DEVICE)
            return begin(in, WRITE, asked->offset, asked->size, body + sizeof *asked);
        body[sizeof *asked + asked->size] = 0;
        int refused = change_faults(body + sizeof *asked);
        return (void)answer(in->unique, refused, &out, refused ? 0 : sizeof out);
    }
    case FUSE_FSYNC:
        if (node == DEVICE)
            return begin(in, FLUSH, 0, 0, NULL);
        return (void)answer(in->unique, 0, NULL, 0);
    case FUSE_FALLOCATE: {
        const struct fuse_fallocate_in *asked = (void *)body;
        int failed = fallocate(image_fd, (int)asked->mode | FALLOC_FL_KEEP_SIZE, (off_t)asked->offset, (off_t)asked->length);
        return (void)answer(in->unique, failed ? errno : 0, NULL, 0);
    }
    case FUSE_STATFS: {
        struct fuse_statfs_out out = {.st = {.bsize = 4096, .namelen = 255}};
        return (void)answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_DESTROY:
        return (void)answer(in->unique, 0, NULL, 0);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return; /* no answer is expected */
    default:
        return (void)answer(in->unique, ENOSYS, NULL, 0);
    }
}

/* --- Start ---------------------------------------------------------------------------------------------------- */

static void fail(const char *what)
{
    fprintf(stderr, "storage_model: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Answers are due to the microsecond, and the kernel must get them though memory is short: it may be waiting for us to
 * write its pages. What of this is not allowed here is done without. */
static void be_prompt(void)
{
    struct sched_param first = {.sched_priority = 1};
    int adjust = open("/proc/self/oom_score_adj", O_WRONLY);
    if (adjust >= 0 && write(adjust, "-1000", 5) == 5)
        close(adjust);
    mlockall(MCL_CURRENT);
    prctl(PR_SET_TIMERSLACK, 1000);
    prctl(PR_SET_IO_FLUSHER, 1);
    sched_setscheduler(0, SCHED_FIFO, &first);
}

static void read_words(int argc, char **argv)
{
    static const struct { const char *name; void (*submit)(struct request *, ns); } kinds[] = {
        {"disk", disk_submit}, {"flash", flash_submit}, {"server", server_submit}};
    for (int i = 3; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            errno = EINVAL, fail(argv[i]);
        *value = 0;
        for (size_t k = 0; !strcmp(argv[i], "kind") && k < sizeof kinds / sizeof *kinds; k++)
            if (!strcmp(kinds[k].name, value + 1))
                kind = kinds[k].name, submit = kinds[k].submit;
        if (strcmp(argv[i], "kind") ? !set(PARAMETERS, argv[i], value + 1) : !kind)
            errno = EINVAL, fail(argv[i]);
        *value = '='; /* ps shows the words as they were given */
    }
    if (!kind || P.read_mb_per_s <= 0 || P.write_mb_per_s <= 0 || P.channels > CHANNELS || P.osts * P.disks > ARMS)
        errno = EINVAL, fail("kind, rates, channels, osts or disks");
}

int main(int argc, char **argv)
{
    char options[128], *buffer = aligned_alloc(4096, ROOM + 4096);
    struct stat facts;
    if (argc < 4)
        errno = EINVAL, fail("FOLDER IMAGE KEY=VALUE...");
    read_words(argc, argv);
    if ((image_fd = open(argv[2], O_RDWR | O_CLOEXEC | O_NOFOLLOW)) < 0 || fstat(image_fd, &facts))
        fail(argv[2]);
    image_bytes = (uint64_t)facts.st_size;
    if ((fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK)) < 0)
        fail("/dev/fuse");
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,max_read=%d",
             fuse_fd, LARGEST);
    if (mount("tfio", argv[1], "fuse.tfio", MS_NOSUID | MS_NODEV | MS_NOEXEC, options))
        fail(argv[1]);
    if (daemon(0, 0))
        fail("daemon");
    be_prompt();
    if ((image = mmap(NULL, image_bytes, PROT_READ, MAP_SHARED, image_fd, 0)) == MAP_FAILED)
        _exit(1);
    changed = now();
    for (;;) {
        ssize_t got = read(fuse_fd, buffer, ROOM);
        if (got >= 0) {
            buffer[got] = 0;
            serve((void *)buffer, buffer + sizeof(struct fuse_in_header));
        } else if (errno != EAGAIN && errno != EINTR && errno != ENOENT)
            _exit(0); /* unmounted, or aborted */
        ns left = answer_due();
        if (got < 0) {
            struct pollfd requests = {.fd = fuse_fd, .events = POLLIN};
            struct timespec until = {left / NS, left % NS};
            ppoll(&requests, 1, left < 0 ? NULL : &until, NULL);
        }
    }
}
