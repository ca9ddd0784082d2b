/* Allocation from pools, ordered by streams. */
#include "cuda/context/context.h"
#include "cuda/graph/memory.h"
#include "cuda/memory/memory.h"
#include "cuda/memory/pool/pool.h"
#include "cuda/stream/capture/record.h"
#include "cuda/stream/submit.h"

static CUresult allocate(CUstream stream, CUmemoryPool pool, CUdeviceptr *address, size_t bytes) {
    if (!address || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return capture_allocation(stream, pool, address, bytes);
    uint64_t base = pool ? pool_take(pool, stream->context, bytes) : 0;
    if (!base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *address = base;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream handle) {
    CUstream stream;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    return driver_leave(allocate(stream, pool_current(stream->context->device), address, bytes));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream handle) {
    CUstream stream;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    if (!pool_is(pool) || pool->is_imported)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(allocate(stream, pool, address, bytes));
}

static void free_effect(const struct work_data *data) {
    struct allocation *allocation = memory_find(data->values[0]);
    if (allocation && allocation->base == data->values[0])
        memory_release(allocation);
}

/* Frees in the order of the stream: at once, unless the stream still waits for a host function. */
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
    CUstream stream;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    struct allocation *allocation = memory_find(address);
    struct graph_allocation *graph = graph_memory_at(address);
    if (stream->capture)
        return driver_leave(graph ? capture_free(stream, address) : CUDA_ERROR_INVALID_VALUE);
    if (graph)
        return driver_leave(graph_memory_free(graph));
    if (!allocation || allocation->base != address ||
        (allocation->kind != MEMORY_POOLED && allocation->kind != MEMORY_DEVICE &&
         (allocation->kind != MEMORY_IMPORTED || allocation->opens)))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct work work = {.kind = WORK_DEVICE, .effect = free_effect, .data = {{address}}};
    return driver_leave(submit(stream, &work));
}
