/* The API of allocation (linear, pitched, managed, page-locked) and of free memory. */
#include "book/limits_api.h"
#include "cuda/context/context.h"
#include "cuda/graph/memory.h"
#include "cuda/memory/memory.h"
#include "cuda/stream/capture/capture.h"
#include "cuda/stream/queue.h"

enum { PITCH_ALIGNMENT = 512 };

static CUresult allocate(CUcontext context, enum memory_kind kind, CUdeviceptr *address, size_t bytes) {
    if (!address || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t base;
    CUresult result = memory_allocate(context, kind, bytes, &base);
    if (result == CUDA_SUCCESS)
        *address = base;
    return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    CUcontext context;
    CUresult entered = capture_enter(&context);
    return entered ? entered : driver_leave(allocate(context, MEMORY_DEVICE, address, bytes));
}

static CUresult allocate_pitch(CUcontext context, CUdeviceptr *address, size_t *pitch, size_t width,
                               size_t height, unsigned element) {
    size_t row, bytes;
    if (!pitch || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_add_overflow(width, (size_t)PITCH_ALIGNMENT - 1, &row))
        return CUDA_ERROR_INVALID_VALUE;
    row -= row % PITCH_ALIGNMENT;
    if (__builtin_mul_overflow(row, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = allocate(context, MEMORY_DEVICE, address, bytes);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned int element) {
    CUcontext context;
    CUresult entered = capture_enter(&context);
    return entered ? entered : driver_leave(allocate_pitch(context, address, pitch, width, height, element));
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags) {
    CUcontext context;
    CUresult entered = capture_enter(&context);
    if (entered)
        return entered;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(allocate(context, MEMORY_MANAGED, address, bytes));
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    CUcontext context;
    CUresult entered = capture_enter(&context);
    if (entered)
        return entered;
    if (!address)
        return driver_leave(CUDA_SUCCESS);
    struct allocation *allocation = memory_find(address);
    if (graph_memory_at(address)) {
        queue_finish_context(context);
        struct graph_allocation *graph = graph_memory_at(address);
        return driver_leave(graph ? graph_memory_free(graph) : CUDA_ERROR_INVALID_VALUE);
    }
    if (!allocation || allocation->base != address || allocation->kind == MEMORY_MAPPED ||
        allocation->kind == MEMORY_HOST || allocation->kind == MEMORY_REGISTERED ||
        allocation->kind == MEMORY_GRAPH || (allocation->kind == MEMORY_IMPORTED && allocation->opens))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    queue_finish_context(allocation->context); /* pending work may still use the memory */
    allocation = memory_find(address);
    if (allocation)
        memory_release(allocation);
    return driver_leave(CUDA_SUCCESS);
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* The driver shows a process its control groups' limit in place of the card. */
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (!free_bytes || !total_bytes)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    const struct node_gpu *card = driver_gpu(context->device);
    uint64_t hard_bytes, left_bytes;
    book_own_limit(&driver.book, context->gpu, &hard_bytes, &left_bytes);
    *free_bytes = least(book_free_bytes(&driver.book, context->gpu), left_bytes);
    *total_bytes = least(card->memory_bytes - card->reserved_bytes, hard_bytes);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    const struct allocation *allocation = memory_find(address);
    if (!allocation)
        return driver_leave(CUDA_ERROR_NOT_FOUND);
    if (base)
        *base = allocation->base;
    if (size)
        *size = allocation->size;
    return driver_leave(CUDA_SUCCESS);
}

static CUresult allocate_host(CUcontext context, void **pointer, size_t bytes, unsigned flags) {
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (!pointer || !bytes || (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    struct allocation allocation = {.base = memory_back(bytes),
                                    .size = bytes,
                                    .kind = MEMORY_HOST,
                                    .context = context->owner,
                                    .gpu = context->gpu,
                                    .device = context->device};
    if (!allocation.base || !memory_add(&allocation))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = (void *)(uintptr_t)allocation.base;
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags) {
    CUcontext context;
    CUresult entered = capture_enter(&context);
    return entered ? entered : driver_leave(allocate_host(context, pointer, bytes, flags));
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes) {
    return cuMemHostAlloc(pointer, bytes, CU_MEMHOSTALLOC_DEVICEMAP);
}

static struct allocation *host_at(const void *pointer, enum memory_kind kind) {
    struct allocation *allocation = memory_find((uint64_t)(uintptr_t)pointer);
    return allocation && allocation->kind == kind ? allocation : NULL;
}

CUresult cuMemFreeHost(void *pointer) {
    CUcontext context;
    CUresult entered = capture_enter(&context);
    if (entered)
        return entered;
    struct allocation *allocation = host_at(pointer, MEMORY_HOST);
    if (!allocation || allocation->base != (uint64_t)(uintptr_t)pointer)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    queue_finish_context(allocation->context);
    allocation = host_at(pointer, MEMORY_HOST);
    if (allocation)
        memory_release(allocation);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags) {
    CUcontext context;
    CUresult entered = capture_enter(&context);
    if (entered)
        return entered;
    if (!pointer || !bytes || (flags & ~0xfu))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (memory_find((uint64_t)(uintptr_t)pointer))
        return driver_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    struct allocation allocation = {.base = (uint64_t)(uintptr_t)pointer,
                                    .size = bytes,
                                    .kind = MEMORY_REGISTERED,
                                    .context = context->owner,
                                    .gpu = context->gpu,
                                    .device = context->device};
    return driver_leave(memory_add(&allocation) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuMemHostUnregister(void *pointer) {
    CUcontext context;
    CUresult entered = capture_enter(&context);
    if (entered)
        return entered;
    struct allocation *allocation = host_at(pointer, MEMORY_REGISTERED);
    if (!allocation || allocation->base != (uint64_t)(uintptr_t)pointer)
        return driver_leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    memory_release(allocation);
    return driver_leave(CUDA_SUCCESS);
}

static struct allocation *locked_at(const void *pointer) {
    struct allocation *allocation = host_at(pointer, MEMORY_HOST);
    return allocation ? allocation : host_at(pointer, MEMORY_REGISTERED);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer, unsigned int flags) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (!address || flags || !locked_at(pointer))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *address = (uint64_t)(uintptr_t)pointer;
    return driver_leave(CUDA_SUCCESS);
}
