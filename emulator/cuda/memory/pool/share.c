/* Pools across processes. The importer gets a pool from which it cannot allocate, and imports pointers one
 * by one. The exporter's pool pays for its reserved bytes. A process that maps a pointer which the
 * exporter has freed pays for that memory. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda/context/context.h"
#include "cuda/memory/ipc.h"
#include "cuda/memory/memory.h"
#include "cuda/memory/pool/pool.h"
#include "cuda/stream/submit.h"

#define POOL_MAGIC 0x4C4F4F5053504C50ull

/* The content of the exported file. */
struct pool_tag {
    uint64_t magic, pool_id, claimed_ns;
    uint32_t gpu, slot;
    uint64_t book_inode;
};

/* The data of an exported pointer. */
struct pool_pointer {
    struct ipc_handle handle;
    uint32_t pool_id;
};

_Static_assert(sizeof(struct pool_pointer) <= sizeof(CUmemPoolPtrExportData),
               "a pointer's data have no room for more");

static uint64_t book_inode(void) {
    struct stat book;
    return fstat(driver.book.fd, &book) == 0 ? book.st_ino : 0;
}

static CUresult export_pool(const struct CUmemPoolHandle_st *pool, int *result) {
    struct pool_tag tag = {.magic = POOL_MAGIC,
                           .pool_id = pool->id,
                           .claimed_ns = driver.book.state->slots[driver.book.slot].claimed_ns,
                           .gpu = (uint32_t)pool->gpu,
                           .slot = (uint32_t)driver.book.slot,
                           .book_inode = book_inode()};
    int fd = share_file(sizeof tag);
    if (fd >= 0 && pwrite(fd, &tag, sizeof tag, 0) == (ssize_t)sizeof tag) {
        *result = fd;
        return CUDA_SUCCESS;
    }
    if (fd >= 0)
        close(fd);
    return CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult cuMemPoolExportToShareableHandle(void *result, CUmemoryPool pool, CUmemAllocationHandleType type,
                                          unsigned long long flags) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!result || !pool_is(pool) || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !(pool->handle_types & type))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(export_pool(pool, result));
}

static CUdevice device_of(uint32_t gpu) {
    for (CUdevice device = 0; device < driver.device_count; device++)
        if (driver.gpus[device] == (int)gpu)
            return device;
    return -1;
}

static CUresult import_pool(int fd, CUmemoryPool *result) {
    struct pool_tag tag;
    if (pread(fd, &tag, sizeof tag, 0) != (ssize_t)sizeof tag || tag.magic != POOL_MAGIC ||
        tag.book_inode != book_inode())
        return CUDA_ERROR_INVALID_VALUE;
    CUdevice device = device_of(tag.gpu);
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    CUmemoryPool pool = pool_new(device);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool->is_imported = true;
    pool->id = tag.pool_id;
    pool->exporter_ns = tag.claimed_ns;
    *result = pool;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
                                            unsigned long long flags) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!pool || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(import_pool((int)(intptr_t)handle, pool));
}

static CUresult export_pointer(struct allocation *allocation, struct pool_pointer *pointer) {
    if (!allocation->share)
        allocation->share = share_move(allocation->gpu, allocation->base,
                                       memory_round_up(allocation->size, (size_t)sysconf(_SC_PAGESIZE)), 0);
    if (!allocation->share)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ipc_describe(&pointer->handle, allocation->share, allocation->size);
    pointer->pool_id = (uint32_t)allocation->pool->id;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *result, CUdeviceptr address) {
    struct pool_pointer pointer = {0};
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    struct allocation *allocation = memory_find(address);
    if (!result || !allocation || allocation->base != address || allocation->kind != MEMORY_POOLED ||
        !allocation->pool->handle_types)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    CUresult outcome = export_pointer(allocation, &pointer);
    if (outcome == CUDA_SUCCESS) {
        memset(result, 0, sizeof *result);
        memcpy(result, &pointer, sizeof pointer);
    }
    return driver_leave(outcome);
}

CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool, CUmemPoolPtrExportData *data) {
    struct pool_pointer pointer;
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (!address || !data || !pool_is(pool) || !pool->is_imported)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    memcpy(&pointer, data, sizeof pointer);
    if (pointer.handle.magic != IPC_MAGIC || pointer.pool_id != pool->id ||
        pointer.handle.claimed_ns != pool->exporter_ns)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(ipc_open(context, &pointer.handle, address));
}
