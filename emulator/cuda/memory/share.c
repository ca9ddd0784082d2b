#include "cuda/memory/share.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "book/shared.h"

#define TAG_MAGIC 0x45524148534D4C50ull /* "PLMSHARE" */
enum { TAG_BYTES = 4096 };

/* Follows the memory in the file. */
struct tag {
    uint64_t magic, id, bytes;
    uint64_t book_device, book_inode; /* identify the book, as a machine may have several emulated nodes */
    uint32_t gpu, reserved;
};

static struct share *first; /* lock */

int share_file(size_t bytes) {
    int fd = (int)syscall(SYS_memfd_create, "plimsoll-emulator", 1u /* close on exec */);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static struct share *keep(uint64_t id, int gpu, size_t bytes, size_t paid_bytes, int fd) {
    struct share *share = calloc(1, sizeof *share);
    if (!share)
        return NULL;
    *share = (struct share){
        .next = first, .id = id, .bytes = bytes, .paid_bytes = paid_bytes, .gpu = gpu, .fd = fd, .uses = 1};
    return first = share;
}

static bool fill_tag(struct tag *tag, uint64_t id, size_t bytes, int gpu) {
    struct stat book;
    if (fstat(driver.book.fd, &book) != 0)
        return false;
    *tag = (struct tag){.magic = TAG_MAGIC,
                        .id = id,
                        .bytes = bytes,
                        .book_device = book.st_dev,
                        .book_inode = book.st_ino,
                        .gpu = (uint32_t)gpu};
    return true;
}

static bool write_tag(int fd, const struct tag *tag) {
    return ftruncate(fd, (off_t)(tag->bytes + TAG_BYTES)) == 0 &&
           pwrite(fd, tag, sizeof *tag, (off_t)tag->bytes) == (ssize_t)sizeof *tag;
}

struct share *share_offer(int gpu, size_t bytes, size_t paid_bytes, int fd) {
    struct tag tag;
    uint64_t id = book_offer(&driver.book, gpu, bytes);
    if (!id)
        return NULL;
    struct share *share = NULL;
    if (fill_tag(&tag, id, bytes, gpu) && write_tag(fd, &tag))
        share = keep(id, gpu, bytes, paid_bytes, fd);
    if (!share)
        book_let_go(&driver.book, id, gpu, 0);
    return share;
}

static bool read_tag(int fd, struct tag *tag) {
    struct tag own;
    struct stat file;
    if (fstat(fd, &file) != 0 || file.st_size <= TAG_BYTES ||
        pread(fd, tag, sizeof *tag, (off_t)(file.st_size - TAG_BYTES)) != (ssize_t)sizeof *tag)
        return false;
    return fill_tag(&own, tag->id, (size_t)file.st_size - TAG_BYTES, (int)tag->gpu) &&
           memcmp(&own, tag, sizeof own) == 0;
}

static bool is_visible(int gpu) {
    for (CUdevice device = 0; device < driver.device_count; device++)
        if (driver.gpus[device] == gpu)
            return true;
    return false;
}

static CUresult hold(const struct tag *tag, int file, struct share **result) {
    bool pays;
    int gpu = (int)tag->gpu, fd = fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (!book_hold(&driver.book, tag->id, gpu, tag->bytes, &pays)) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t paid_bytes = pays ? tag->bytes : 0;
    *result = keep(tag->id, gpu, tag->bytes, paid_bytes, fd);
    if (!*result) {
        book_let_go(&driver.book, tag->id, gpu, paid_bytes);
        close(fd);
    }
    return *result ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult share_take(int fd, struct share **result) {
    struct tag tag;
    if (!read_tag(fd, &tag))
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_visible((int)tag.gpu))
        return CUDA_ERROR_INVALID_DEVICE;
    for (struct share *share = first; share; share = share->next) {
        if (share->id == tag.id) {
            share_use(share);
            *result = share;
            return CUDA_SUCCESS;
        }
    }
    return hold(&tag, fd, result);
}

void share_use(struct share *share) {
    share->uses++;
}

void share_drop(struct share *share) {
    struct share **link = &first;
    if (--share->uses)
        return;
    while (*link != share)
        link = &(*link)->next;
    *link = share->next;
    close(share->fd);
    book_let_go(&driver.book, share->id, share->gpu, share->paid_bytes);
    free(share);
}

CUdevice share_device(const struct share *share) {
    CUdevice device = 0;
    while (driver.gpus[device] != share->gpu)
        device++;
    return device;
}

uint64_t share_map(const struct share *share) {
    void *base = mmap(NULL, share->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, share->fd, 0);
    return base == MAP_FAILED ? 0 : (uint64_t)(uintptr_t)base;
}
