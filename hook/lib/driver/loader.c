/* Finds the functions of the loader, glibc's or musl's, without calling any.
 *
 * The usual way is `dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5")`. It needs a dlvsym that is not hooked itself,
 * and a version string that differs by architecture (2.2.5, 2.17) and release (2.34). `__libc_dlsym` went
 * private in 2.34. The symbol tables in memory work everywhere and depend on nothing.
 */
#include "driver/loader.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

struct symbols {
    const ElfW(Sym) * table;
    const char *names;
    const uint32_t *hash; /* DT_GNU_HASH */
};

/* glibc relocates these pointers in memory on the architectures supported here; other loaders do not. */
static const void *in_memory(const struct dl_phdr_info *info, ElfW(Addr) address) {
    return (const void *)(address < info->dlpi_addr ? address + info->dlpi_addr : address);
}

static struct symbols symbols_of(const struct dl_phdr_info *info) {
    struct symbols found = {0};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++) {
            if (entry->d_tag == DT_SYMTAB)
                found.table = in_memory(info, entry->d_un.d_ptr);
            else if (entry->d_tag == DT_STRTAB)
                found.names = in_memory(info, entry->d_un.d_ptr);
            else if (entry->d_tag == DT_GNU_HASH)
                found.hash = in_memory(info, entry->d_un.d_ptr);
        }
    }
    return found;
}

static uint32_t gnu_hash(const char *name) {
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

/* The look-up of the GNU hash section, without its Bloom filter: this runs a dozen times per process. */
static ElfW(Addr) find_symbol(const struct symbols *in, const char *name) {
    uint32_t bucket_count = in->hash[0], first = in->hash[1], bloom_words = in->hash[2];
    const uint32_t *buckets = in->hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + bucket_count;
    uint32_t hash = gnu_hash(name);
    uint32_t index = bucket_count == 0 ? 0 : buckets[hash % bucket_count];
    if (index < first)
        return 0;
    for (;; index++) {
        const ElfW(Sym) *symbol = &in->table[index];
        uint32_t stored = chain[index - first];
        int is_match = ((stored ^ hash) >> 1) == 0 && strcmp(in->names + symbol->st_name, name) == 0;
        if (is_match && symbol->st_shndx != SHN_UNDEF)
            return symbol->st_value;
        if (stored & 1)
            return 0;
    }
}

/* The functions live in libdl.so.2 up to glibc 2.33 and in libc.so.6 from 2.34. musl's loader is its libc. */
static int is_libc(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *file = slash ? slash + 1 : path;
    return strncmp(file, "libc.so", 7) == 0 || strncmp(file, "libdl.so", 8) == 0 ||
           strncmp(file, "ld-musl-", 8) == 0;
}

static void take(ElfW(Addr) base, ElfW(Addr) value, void *into) {
    ElfW(Addr) address = base + value;
    if (value)
        memcpy(into, &address, sizeof(address));
}

/* musl has no dlvsym and no dladdr1. No program that musl starts calls a function that its libc lacks. */
static int is_complete(const struct plimsoll_loader *found) {
    return found->dlsym && found->dlopen && found->dlerror && found->dladdr;
}

static int visit(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    struct plimsoll_loader *found = argument;
    if (!info->dlpi_name || !is_libc(info->dlpi_name))
        return 0;
    struct symbols in = symbols_of(info);
    if (!in.table || !in.names || !in.hash)
        return 0;
#define TAKE(name)                                                                                           \
    if (!found->name)                                                                                        \
        take(info->dlpi_addr, find_symbol(&in, #name), &found->name);
    PLIMSOLL_LOADER_FUNCTIONS(TAKE)
    return is_complete(found);
}

int plimsoll_find_loader(struct plimsoll_loader *found) {
    *found = (struct plimsoll_loader){0};
    dl_iterate_phdr(visit, found);
    return is_complete(found);
}
