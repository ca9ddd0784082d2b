/* Device memory across processes by handle (cuIpc*). A handle names the exporting process and its
 * descriptor of the memory. The importer opens that descriptor through /proc, so both processes must share
 * a PID namespace and a user, as with NVIDIA's driver. The memory lives as long as the exporter's
 * allocation or any importer's mapping. */
#include "cuda/memory/ipc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "book/state_file.h"
#include "cuda/context/context.h"
#include "cuda/memory/memory.h"
#include "cuda/stream/capture/capture.h"
#include "cuda/stream/queue.h"

void ipc_describe(struct ipc_handle *handle, const struct share *share, uint64_t size) {
    handle->magic = IPC_MAGIC;
    handle->share_id = share->id;
    handle->size = size;
    handle->slot = (uint32_t)driver.book.slot;
    handle->claimed_ns = driver.book.state->slots[driver.book.slot].claimed_ns;
    handle->fd = share->fd;
}

static CUresult describe(CUdeviceptr address, struct ipc_handle *handle) {
    struct allocation *allocation = memory_find(address);
    struct share *share;
    if (!allocation || allocation->base != address || allocation->kind != MEMORY_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = memory_offer(allocation, &share, &handle->offset);
    if (result)
        return result;
    ipc_describe(handle, share, allocation->size);
    return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *result, CUdeviceptr address) {
    CUcontext context;
    struct ipc_handle handle = {0};
    CUresult entered = capture_enter(&context);
    if (entered)
        return entered;
    CUresult outcome = result ? describe(address, &handle) : CUDA_ERROR_INVALID_VALUE;
    if (outcome == CUDA_SUCCESS) {
        memset(result, 0, sizeof *result);
        memcpy(result, &handle, sizeof handle);
    }
    return driver_leave(outcome);
}

/* Opens the exporter's file; -1 if the exporter is gone or out of reach. */
static int reach(const struct ipc_handle *handle) {
    char path[64];
    uint32_t pid;
    if (handle->slot >= BOOK_MAX_SLOTS || !book_file_slot_held(driver.book.fd, (int)handle->slot, &pid) ||
        driver.book.state->slots[handle->slot].claimed_ns != handle->claimed_ns)
        return -1;
    snprintf(path, sizeof path, "/proc/%u/fd/%d", pid, handle->fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

struct wanted {
    uint64_t share_id, offset;
    CUcontext context;
};

static bool is_open(const struct allocation *allocation, const void *closure) {
    const struct wanted *wanted = closure;
    return allocation->kind == MEMORY_IMPORTED && allocation->context == wanted->context &&
           allocation->share->id == wanted->share_id && allocation->share_offset == wanted->offset;
}

static CUresult map(CUcontext context, struct share *share, const struct ipc_handle *handle,
                    CUdeviceptr *address) {
    if (share->id != handle->share_id || handle->offset > share->bytes ||
        handle->size > share->bytes - handle->offset)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t base = share_map(share);
    struct allocation allocation = {.base = base + handle->offset,
                                    .size = handle->size,
                                    .kind = MEMORY_IMPORTED,
                                    .context = context,
                                    .gpu = share->gpu,
                                    .device = share_device(share),
                                    .share = share,
                                    .share_offset = handle->offset};
    if (!base)
        return CUDA_ERROR_MAP_FAILED;
    if (!memory_add(&allocation)) {
        memory_unback(base, share->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = allocation.base;
    return CUDA_SUCCESS;
}

CUresult ipc_open(CUcontext context, const struct ipc_handle *handle, CUdeviceptr *address) {
    struct share *share;
    int fd = reach(handle);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = share_take(fd, &share);
    close(fd);
    if (result)
        return result;
    result = map(context, share, handle, address);
    if (result)
        share_drop(share);
    return result;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle given, unsigned int flags) {
    CUcontext context;
    struct ipc_handle handle;
    CUresult entered = capture_enter(&context);
    if (entered)
        return entered;
    memcpy(&handle, &given, sizeof handle);
    if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || handle.magic != IPC_MAGIC)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if ((int)handle.slot == driver.book.slot) /* a process must not open its own handles */
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    struct wanted wanted = {.share_id = handle.share_id, .offset = handle.offset, .context = context};
    struct allocation *already = memory_search(is_open, &wanted);
    if (already) {
        already->opens++;
        *address = already->base;
        return driver_leave(CUDA_SUCCESS);
    }
    CUresult result = ipc_open(context, &handle, address);
    if (result == CUDA_SUCCESS)
        memory_find(*address)->opens = 1;
    return driver_leave(result);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    CUcontext context;
    CUresult entered = capture_enter(&context);
    if (entered)
        return entered;
    struct allocation *allocation = memory_find(address);
    if (!allocation || allocation->base != address || allocation->kind != MEMORY_IMPORTED ||
        !allocation->opens)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (allocation->opens > 1) {
        allocation->opens--;
        return driver_leave(CUDA_SUCCESS);
    }
    queue_finish_context(allocation->context);
    allocation = memory_find(address);
    if (allocation)
        memory_release(allocation);
    return driver_leave(CUDA_SUCCESS);
}
