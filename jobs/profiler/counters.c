/* Count the calls on a file, with the names and definitions of Darshan 3.4. */
#include "hooks.h"

static const int64_t size_edges[] = {100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30};

/* Count how often a value occurs. Only the first four different values are counted; the value 0 is not counted. */
static void common(int64_t *values, uint32_t *counts, int64_t value) {
    for (int i = 0; value && i < 4; i++)
        if (!counts[i] || values[i] == value) {
            values[i] = value, counts[i]++;
            return;
        }
}

/* Add the duration of a call to a sum, without the part that overlaps earlier calls. */
static void spend(int64_t *sum, int64_t *last_end, const struct event *e) {
    *sum += e->start > *last_end ? e->end - e->start : e->end > *last_end ? e->end - *last_end : 0;
    if (e->end > *last_end) *last_end = e->end;
}

static void span(int64_t *first, int64_t *last, const struct event *e) {
    if (!*first || e->start < *first) *first = e->start;
    if (e->end > *last) *last = e->end;
}

static void transfer(struct counters *c, const struct event *e, int writes) {
    int64_t bytes = e->returned, elapsed = e->end - e->start;
    struct side *side = writes ? &c->write : &c->read;
    int size = 0;
    while (size < 9 && bytes > size_edges[size]) size++;
    side->sizes[size]++, side->calls++, side->bytes += bytes;
    if (e->offset >= 0) {
        side->sequential += e->offset > side->last, side->consecutive += e->offset == side->last + 1;
        common(c->stride, c->stride_count, e->offset > side->last && side->last ? e->offset - side->last - 1 : 0);
        side->last = e->offset + bytes - 1;
        if (side->last > side->max_byte) side->max_byte = side->last;
    }
    common(c->access_size, c->access_count, bytes);
    c->rw_switches += c->last == (writes ? 'r' : 'w'), c->last = writes ? 'w' : 'r';
    if (elapsed > side->max_time) side->max_time = elapsed, side->max_time_size = bytes;
    if (!side->start || e->start < side->start) side->start = e->start;
    spend(&side->time, &side->end, e);
}

void count(struct counters *c, const struct event *e, int operation) {
    uint32_t *calls = NULL;
    if (e->returned < 0) return; /* Darshan does not count failed calls */
    switch (operation) {
    case READ: case PREAD: case READV: case PREADV: case FREAD: transfer(c, e, 0); return;
    case WRITE: case PWRITE: case WRITEV: case PWRITEV: case FWRITE: transfer(c, e, 1); return;
    case OPEN: case FOPEN:
        if (c->write.last) c->write.last = 0; /* the condition avoids a write to memory for a file that is only read */
        c->read.last = 0, c->opens++;
        span(&c->open_start, &c->open_end, e), spend(&c->meta_time, &c->meta_end, e);
        return;
    case CLOSE: case FCLOSE:
        span(&c->close_start, &c->close_end, e), spend(&c->meta_time, &c->meta_end, e);
        return;
    case FSYNC: case FDSYNC: case FFLUSH:
        *(operation == FSYNC ? &c->fsyncs : operation == FDSYNC ? &c->fdsyncs : &c->flushes) += 1;
        spend(&c->write.time, &c->write.end, e);
        return;
    case FDOPEN: calls = &c->fdopens; break;
    case DUP: calls = &c->dups; break;
    case SEEK: case FSEEK: calls = &c->seeks; break;
    case STAT: calls = &c->stats; break;
    case MMAP: calls = &c->mmaps; break;
    case RENAME: calls = &c->rename_sources; break;
    case RENAMED: calls = &c->rename_targets; break;
    default: return; /* Darshan has no counter for any other operation */
    }
    *calls += 1;
    spend(&c->meta_time, &c->meta_end, e);
}

/* Calculate the counters of recorded events, as a window in mode counters has them. The events may come from a damaged
 * file, and another process may change the file at the same time. Therefore invalid events are skipped, and each value
 * that is used as an index is read only once. */
void profiler_count(const struct event *events, uint64_t n, struct counters *counters, uint64_t files) {
    for (uint64_t i = 0; i < n; i++) {
        int64_t file = *(const volatile int32_t *)&events[i].file;
        int operation = atomic_load_explicit(&events[i].operation, memory_order_relaxed);
        if (file >= 0 && (uint64_t)file < files) count(&counters[file], &events[i], operation);
    }
}
