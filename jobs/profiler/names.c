/* Give each file name a number: an arena stores the names, and a hash table finds the number of a name. */
#define _GNU_SOURCE
#include "hooks.h"

#include <string.h>
#include <sys/mman.h>

enum { ARENA = 1 << 29, KEPT = 1 << 26, FEWEST_BUCKETS = 1 << 14 };
enum { FIRST = sizeof(struct file) / 8 };
struct table { /* numbers of files by the hash of the name; the table is small, so that it stays in the CPU cache */
    uint32_t mask;
    _Atomic uint32_t at[];
};

char *names_arena;
static uint32_t arena_used, file_count;
/* A larger table replaces a full table. The old table is not freed, because a thread may still read the old table. */
static struct table *_Atomic table;
pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t hash_of(const char *name, size_t length) {
    uint64_t hash = length * 0x9E3779B97F4A7C15u, word = 0;
    for (; length >= 8; name += 8, length -= 8) {
        memcpy(&word, name, 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u, hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, name, length);
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(hash >> 32) ^ (uint32_t)hash;
}

void *room_of(size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return room == MAP_FAILED ? NULL : room;
}

/* Return the number of a name, or 0 if the table does not have the name. `place` becomes the place in the table where
   the number is or would be. The place is read only once, because another thread may store another name there later. */
static uint32_t look_up(struct table *in, uint32_t hash, const char *name, size_t length, _Atomic uint32_t **place) {
    for (uint32_t at = hash & in->mask;; at = (at + 1) & in->mask) {
        uint32_t number = atomic_load_explicit(*place = &in->at[at], memory_order_acquire);
        const struct file *file = file_at(number);
        if (!number || (file->hash == hash && file->length == length && !memcmp(file->name, name, length))) return number;
    }
}

/* Replace the table by a larger table. Return 0 if there is no memory. */
static int grow(void) {
    struct table *old = table;
    uint32_t buckets = old ? (old->mask + 1) * 4 : FEWEST_BUCKETS;
    struct table *larger = room_of(sizeof *larger + buckets * sizeof *larger->at);
    if (!larger) return 0;
    larger->mask = buckets - 1;
    for (uint32_t i = 0; old && i <= old->mask; i++) {
        const struct file *file = file_at(old->at[i]);
        _Atomic uint32_t *place;
        if (old->at[i]) look_up(larger, file->hash, file->name, file->length, &place), *place = old->at[i];
    }
    atomic_store_explicit(&table, larger, memory_order_release);
    return 1;
}

/* Forget all names if the names take much memory. Called after a window has ended, when no thread is recording. */
void forget_names(void) {
    if (8ull * arena_used <= KEPT) return;
    pthread_mutex_lock(&names_lock);
    for (uint32_t i = 0; i <= table->mask; i++) atomic_store_explicit(&table->at[i], 0, memory_order_relaxed);
    madvise(names_arena, ARENA, MADV_DONTNEED);
    arena_used = FIRST, file_count = 0;
    pthread_mutex_unlock(&names_lock);
}

/* Return the number of a name, or 0 if there is no space for another name. The number does not change until all names
 * are forgotten. */
uint32_t number_of(const char *name, size_t length) {
    uint32_t hash = hash_of(name, length), size = (uint32_t)(sizeof(struct file) + length + 7) / 8;
    _Atomic uint32_t *place;
    uint32_t number = look_up(atomic_load_explicit(&table, memory_order_acquire), hash, name, length, &place);
    if (number) return number;
    pthread_mutex_lock(&names_lock); /* look up again with the lock, because another thread may have added the name */
    int room = arena_used + size < ARENA / 8 && (file_count < table->mask / 2 || grow());
    number = look_up(table, hash, name, length, &place);
    if (!number && room) {
        struct file *file = file_at(number = arena_used);
        file->length = (uint32_t)length, file->hash = hash;
        memcpy(file->name, name, length);
        arena_used += size, file_count++;
        atomic_store_explicit(place, number, memory_order_release);
    }
    pthread_mutex_unlock(&names_lock);
    return number;
}

int names_begin(void) {
    char *room = room_of(ARENA);
    if (!room || !grow()) return 0;
    madvise(room, ARENA, MADV_HUGEPAGE); /* lookups access random places in the arena */
    names_arena = room, arena_used = FIRST;
    return 1;
}
