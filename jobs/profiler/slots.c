/* Redirect the calls that the modules of this process make to the C library to hooks, and undo the redirection.
 *
 * A module calls a function of another module through a slot that the dynamic linker fills (a GOT entry: ELF gABI,
 * chapter 5). An aligned store of 8 bytes is atomic, so that a thread calls either the old or the new function. Slots
 * may lie on read-only pages (RELRO); such a page is made writable for the store, and is then made read-only again.
 *
 * A module that another thread is just loading must not be patched, because ld.so may still add the load address to the
 * slots of the module. Therefore a slot is patched only if it has an expected value. In a RELRO segment, a slot is
 * patched only after its page has become read-only, which is the last step of ld.so. The next scan looks at all slots
 * again that were not patched. */
#define _GNU_SOURCE
#include "hooks.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { JUMP_SLOT = R_X86_64_JUMP_SLOT, GLOB_DAT = R_X86_64_GLOB_DAT, ABSOLUTE = R_X86_64_64 };
#elif defined(__aarch64__)
enum { JUMP_SLOT = R_AARCH64_JUMP_SLOT, GLOB_DAT = R_AARCH64_GLOB_DAT, ABSOLUTE = R_AARCH64_ABS64 };
#else
#error "the hook library supports only x86-64 and aarch64"
#endif

enum { SLOTS = 1 << 14, MODULES = 1 << 12, MAPPINGS = 1 << 17, MAPS_BYTES = 1 << 24 };

struct slot {
    _Atomic(void *) *at;
    void *original, *hook;
};
struct mapping {
    uintptr_t start, end;
    int protection;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all variables below */
static struct slot slots[SLOTS];
static unsigned slot_count;
static uintptr_t scanned[MODULES]; /* addresses of the dynamic sections of all completely patched modules */
static unsigned scanned_count;
static unsigned long long adds, subs; /* how many modules ld.so had loaded and unloaded at the last scan */
static struct mapping *mappings;
static unsigned mapping_count;
_Atomic uint64_t mappings_bytes;
static uintptr_t libc_start, libc_end;
static struct {
    void *function;
    const char *name;
} others[32]; /* unexpected functions in slots: neither of the C library nor found by this library's own lookup */
static unsigned other_count;

/* Modules whose calls are not recorded: the C library itself, and other profilers and sanitizers, which wrap the
 * functions that this library wraps. */
static const char *const skipped[] = {"ld-linux", "libc.so", "libpthread", "libdl.so",  "librt.so", "libm.so",
                                      "linux-vdso", "libdarshan", "libdftracer", "libgotcha", "libbrahma", "libscorep",
                                      "librecorder", "libasan", "libtsan", "libubsan", "liblsan"};

static int is_skipped(const char *path) {
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    for (unsigned i = 0; i < sizeof skipped / sizeof *skipped; i++)
        if (!strncmp(name, skipped[i], strlen(skipped[i]))) return 1;
    return 0;
}

static struct hook *hook_of(const char *name) {
    for (unsigned i = 0; i < hook_count; i++)
        if (hooks[i].name[0] == name[0] && !strcmp(hooks[i].name, name)) return &hooks[i];
    return NULL;
}

/* Read the address ranges of all mappings of this process, and the protection of each mapping. */
static int read_mappings(void) {
    static char *text;
    if (!text) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *room = mmap(NULL, MAPS_BYTES + MAPPINGS * sizeof *mappings, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (room == MAP_FAILED) return errno;
        text = room, mappings = (struct mapping *)(text + MAPS_BYTES);
    }
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    size_t used = 0;
    for (ssize_t n; used < MAPS_BYTES - 1 && (n = read(fd, text + used, MAPS_BYTES - 1 - used)) > 0;) used += (size_t)n;
    close(fd);
    atomic_fetch_add(&mappings_bytes, used);
    text[used] = 0;
    mapping_count = 0;
    for (char *line = text; line && *line && mapping_count < MAPPINGS; line = strchr(line, '\n'), line += !!line) {
        char *rest;
        struct mapping *m = &mappings[mapping_count++];
        m->start = strtoull(line, &rest, 16);
        m->end = strtoull(rest + 1, &rest, 16);
        m->protection = (rest[1] == 'r' ? PROT_READ : 0) | (rest[2] == 'w' ? PROT_WRITE : 0) | (rest[3] == 'x' ? PROT_EXEC : 0);
    }
    return 0;
}

static const struct mapping *mapping_of(const void *address) {
    unsigned low = 0, high = mapping_count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (mappings[middle].end <= (uintptr_t)address) low = middle + 1;
        else high = middle;
    }
    int found = low < mapping_count && mappings[low].start <= (uintptr_t)address;
    return found && mappings[low].protection & PROT_READ ? &mappings[low] : NULL;
}

/* Store `after` in a slot that has the value `before`. Return 0, or an errno; EAGAIN if the slot has another value. */
static int store(_Atomic(void *) *at, void *before, void *after, int protection) {
    uintptr_t page = (uintptr_t)at & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    if (*at != before) return EAGAIN;
    if (!(protection & PROT_WRITE) && mprotect((void *)page, sizeof(void *), protection | PROT_WRITE)) return errno;
    int stored = __atomic_compare_exchange_n((void **)at, &before, after, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    if (!(protection & PROT_WRITE) && mprotect((void *)page, sizeof(void *), protection)) return errno;
    return stored ? 0 : EAGAIN;
}

struct module {
    uintptr_t base, start, end, relro_start, relro_end;
};

/* Patch a slot. Return 0, or an errno; EAGAIN if the slot is not ready. A function of another profiler stays in the
 * slot. */
static int patch(const struct module *in, _Atomic(void *) *at, struct hook *hook) {
    const struct mapping *mapping = mapping_of(at);
    if (!mapping) return EAGAIN;
    void *value = *at;
    if (value == hook->function) return 0;
    uintptr_t address = (uintptr_t)value;
    int own = address >= in->start && address < in->end; /* no call yet: the slot leads to ld.so's resolver */
    if (value != hook->expected && !own && !(address >= libc_start && address < libc_end)) {
        if (!mapping_of(value)) return EAGAIN;
        if (other_count == sizeof others / sizeof *others) return 0;
        others[other_count].function = value;
        others[other_count++].name = hook->name;
        return 0;
    }
    int protects = (uintptr_t)at >= in->relro_start && (uintptr_t)at < in->relro_end;
    if (protects && mapping->protection & PROT_WRITE) return EAGAIN;
    if (slot_count == SLOTS) return ENOMEM;
    int error = store(at, value, hook->function, mapping->protection);
    if (!error) slots[slot_count++] = (struct slot){at, value, hook->function};
    return error;
}

static int patch_table(const struct module *in, const ElfW(Rela) *table, size_t bytes, const ElfW(Sym) *symbols,
                       const char *names) {
    int worst = 0;
    for (const ElfW(Rela) *each = table, *end = table + bytes / sizeof *table; each < end; each++) {
        unsigned type = ELF64_R_TYPE(each->r_info);
        if ((type != JUMP_SLOT && type != GLOB_DAT && type != ABSOLUTE) || (type == ABSOLUTE && each->r_addend)) continue;
        const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(each->r_info)];
        if (symbol->st_shndx != SHN_UNDEF) continue; /* the module itself defines a function of this name */
        struct hook *hook = hook_of(names + symbol->st_name);
        int error = hook ? patch(in, (_Atomic(void *) *)(in->base + each->r_offset), hook) : 0;
        worst = error ? error : worst;
    }
    return worst;
}

static int patch_module(struct dl_phdr_info *info) {
    struct module in = {info->dlpi_addr, UINTPTR_MAX, 0, 0, 0};
    const ElfW(Dyn) *dynamic = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *each = &info->dlpi_phdr[i];
        uintptr_t start = in.base + each->p_vaddr, end = start + each->p_memsz;
        if (each->p_type == PT_LOAD) in.start = start < in.start ? start : in.start, in.end = end > in.end ? end : in.end;
        if (each->p_type == PT_GNU_RELRO) in.relro_start = start, in.relro_end = end & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
        if (each->p_type == PT_DYNAMIC) dynamic = (const void *)start;
    }
    if (strstr(info->dlpi_name, "/libc.so")) libc_start = in.start, libc_end = in.end;
    if (!dynamic || is_skipped(info->dlpi_name) || ((uintptr_t)scan >= in.start && (uintptr_t)scan < in.end)) return 0;
    for (unsigned i = 0; i < scanned_count; i++)
        if (scanned[i] == (uintptr_t)dynamic) return 0;
    if (!mapping_of(dynamic)) return EAGAIN; /* the module was loaded after the mappings were read */
    uintptr_t values[DT_NUM] = {0}, relative = 0;
    for (const ElfW(Dyn) *each = dynamic; each->d_tag != DT_NULL; each++) {
        if (each->d_tag < DT_NUM) values[each->d_tag] = each->d_un.d_val;
        if (each->d_tag == DT_RELACOUNT) relative = each->d_un.d_val;
    }
    /* glibc may or may not have relocated these pointers already; a relocated pointer is larger than the base. */
    const int pointers[] = {DT_STRTAB, DT_SYMTAB, DT_RELA, DT_JMPREL};
    for (unsigned i = 0; i < sizeof pointers / sizeof *pointers; i++)
        if (values[pointers[i]] && values[pointers[i]] < in.base) values[pointers[i]] += in.base;
    const ElfW(Sym) *symbols = (const void *)values[DT_SYMTAB];
    const char *names = (const char *)values[DT_STRTAB];
    if (!symbols || !names) return 0;
    size_t head = relative * sizeof(ElfW(Rela)); /* skip millions of relocations without a symbol */
    int late = 0;
    if (values[DT_RELA] && values[DT_RELASZ] > head)
        late = patch_table(&in, (const void *)(values[DT_RELA] + head), values[DT_RELASZ] - head, symbols, names);
    int error = values[DT_JMPREL] ? patch_table(&in, (const void *)values[DT_JMPREL], values[DT_PLTRELSZ], symbols, names) : 0;
    error = error ? error : late;
    if (!error && scanned_count < MODULES) scanned[scanned_count++] = (uintptr_t)dynamic;
    return error;
}

static int find_libc(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size, (void)data;
    if (strstr(info->dlpi_name, "/libc.so")) (void)patch_module(info);
    return 0;
}

/* Remove all slots from the list that no longer exist or no longer lead to a hook; return the number of removed slots.
 * The slots of an unloaded module must not be read, because their memory may no longer be mapped. */
static unsigned drop_lost(void) {
    unsigned before = slot_count;
    slot_count = 0;
    for (unsigned i = 0; i < before; i++)
        if (mapping_of(slots[i].at) && *slots[i].at == slots[i].hook) slots[slot_count++] = slots[i];
    return before - slot_count;
}

static int overwritten(void) {
    for (unsigned i = 0; i < slot_count; i++)
        if (*slots[i].at != slots[i].hook) return 1;
    return 0;
}

struct visit {
    int begun, error, again;
};

/* Patch one module. ld.so calls this function with its lock held, so that no module is unloaded at the same time, and
 * the mappings that are read at the first call stay valid. */
static int visit(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct visit *visit = data;
    if (!visit->begun++) {
        int unloaded = info->dlpi_subs != subs;
        if (!unloaded && info->dlpi_adds == adds && !overwritten()) return 1;
        if ((visit->error = read_mappings())) return 1;
        if (drop_lost() || unloaded) scanned_count = 0; /* a new module may have an old address */
        other_count = 0, adds = info->dlpi_adds, subs = info->dlpi_subs;
    }
    int error = patch_module(info);
    if (error == EAGAIN) visit->again = 1;
    else if (error) visit->error = error;
    return 0;
}

int scan(struct attached *answer, int wait) {
    if (wait ? pthread_mutex_lock(&lock) : pthread_mutex_trylock(&lock)) return EBUSY;
    for (unsigned i = 0; !slot_count && i < hook_count; i++) hooks[i].expected = dlsym(RTLD_DEFAULT, hooks[i].name);
    struct visit all = {0};
    dl_iterate_phdr(find_libc, NULL);
    dl_iterate_phdr(visit, &all);
    if (all.error || all.again) adds = 0;
    if (answer) {
        Dl_info found;
        answer->slots = slot_count, answer->modules = scanned_count;
        /* A function whose own name is the name of the slot was found by ordinary symbol lookup, so it is not foreign. */
        for (unsigned i = 0; i < other_count; i++) {
            int known = dladdr(others[i].function, &found) && found.dli_fname;
            if (known && !(found.dli_sname && !strcmp(found.dli_sname, others[i].name)))
                snprintf(answer->foreign, sizeof answer->foreign, "%s", found.dli_fname);
        }
    }
    pthread_mutex_unlock(&lock);
    return all.error ? all.error : all.again ? EAGAIN : 0;
}

/* Restore the original functions in all slots. A slot that another library has changed, or whose module was unloaded,
 * is left alone. ld.so calls this function with its lock held. */
static int give_back(struct dl_phdr_info *info, size_t size, void *data) {
    (void)info, (void)size;
    int *error = data;
    if ((*error = read_mappings())) return 1;
    drop_lost();
    for (unsigned i = slot_count; !*error && i-- > 0;) {
        int failed = store(slots[i].at, slots[i].hook, slots[i].original, mapping_of(slots[i].at)->protection);
        *error = failed == EAGAIN ? 0 : failed;
    }
    return 1;
}

int profiler_detach(void) {
    int error = 0;
    pthread_mutex_lock(&lock);
    dl_iterate_phdr(give_back, &error);
    if (!error) slot_count = scanned_count = 0, adds = 0;
    pthread_mutex_unlock(&lock);
    return error;
}

void forget_lock(void) { pthread_mutex_init(&lock, NULL); }
