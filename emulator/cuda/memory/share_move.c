/* Moves memory from private pages into a file, at the same address, when it is offered to other processes
 * after its allocation. Untouched pages stay untouched, so the move costs no more host memory than before. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/memory/share.h"

enum { PAGES_AT_ONCE = 4096 };
#define PAGE_TOUCHED (3ull << 62) /* present or swapped out: Documentation/admin-guide/mm/pagemap.rst */

/* Reads one entry per page. If the kernel gives no entries, all pages count as touched. */
static void look(int pagemap, uint64_t base, size_t page_bytes, size_t count, uint64_t *entries) {
    size_t bytes = count * sizeof *entries;
    if (pagemap < 0 ||
        pread(pagemap, entries, bytes, (off_t)(base / page_bytes * sizeof *entries)) != (ssize_t)bytes)
        for (size_t i = 0; i < count; i++)
            entries[i] = PAGE_TOUCHED;
}

static bool copy(int fd, uint64_t base, size_t bytes) {
    static uint64_t entries[PAGES_AT_ONCE]; /* lock */
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    bool good = true;
    for (size_t first = 0; good && first < bytes / page_bytes; first += PAGES_AT_ONCE) {
        size_t left = bytes / page_bytes - first, count = left < PAGES_AT_ONCE ? left : PAGES_AT_ONCE;
        look(pagemap, base + first * page_bytes, page_bytes, count, entries);
        for (size_t i = 0; good && i < count; i++) {
            uint64_t offset = (first + i) * page_bytes;
            good = !(entries[i] & PAGE_TOUCHED) || pwrite(fd, (const void *)(uintptr_t)(base + offset),
                                                          page_bytes, (off_t)offset) == (ssize_t)page_bytes;
        }
    }
    if (pagemap >= 0)
        close(pagemap);
    return good;
}

struct share *share_move(int gpu, uint64_t base, size_t bytes, size_t paid_bytes) {
    int fd = share_file(bytes);
    if (fd < 0)
        return NULL;
    bool moved = copy(fd, base, bytes) && mmap((void *)(uintptr_t)base, bytes, PROT_READ | PROT_WRITE,
                                               MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) != MAP_FAILED;
    struct share *share = moved ? share_offer(gpu, bytes, paid_bytes, fd) : NULL;
    if (!share)
        close(fd); /* an existing mapping keeps the file */
    return share;
}
