/* The wrappers of pools: allocating from them, and trimming them. Memory of pools is freed by cuMemFreeAsync
 * and cuMemFree, like all other memory (memory.c). Pools also shrink where a program waits for work
 * (syncs.c). */
#include "driver/driver.h"
#include "memory/charge.h"
#include "memory/current.h"
#include "memory/pools/pools.h"
#include "memory/release.h"

/* A captured allocation is a node of the stream's graph, and takes memory when the graph runs (graphs.c). */
static bool is_capturing(CUstream stream) {
    bool is_so = plimsoll_is_capturing(stream);
    if (is_so)
        plimsoll_graphs_allocate();
    return is_so;
}

#define ALLOCATE_POOLED(symbol, pointer, bytes, stream, where, ...)                                          \
    do {                                                                                                     \
        struct plimsoll_charge charge;                                                                       \
        if (!plimsoll_begin(&charge, #symbol))                                                               \
            return charge.refusal ? charge.refusal : REAL(symbol)(__VA_ARGS__);                              \
        if (is_capturing(stream))                                                                            \
            return REAL(symbol)(__VA_ARGS__);                                                                \
        uint64_t context;                                                                                    \
        charge.gpu = plimsoll_gpu_of_stream(stream, &context);                                               \
        struct plimsoll_pool *pool = where;                                                                  \
        if (plimsoll_pool_reserve(&charge, pool, bytes))                                                     \
            return charge.refusal;                                                                           \
        CUresult result = REAL(symbol)(__VA_ARGS__);                                                         \
        return plimsoll_pool_commit(&charge, pool, result, result == CUDA_SUCCESS ? *(pointer) : 0, stream,  \
                                    context);                                                                \
    } while (0)

/* The driver gets the pool in which the bytes were reserved, because another thread may make a different pool
 * current. */
static CUresult allocate_from(struct plimsoll_pool *pool, CUdeviceptr *dptr, size_t bytesize,
                              CUstream stream) {
    CUmemoryPool handle = pool ? plimsoll_pool_pin(pool) : NULL;
    if (!handle)
        return REAL(cuMemAllocAsync)(dptr, bytesize, stream);
    CUresult result = REAL(cuMemAllocFromPoolAsync)(dptr, bytesize, handle, stream);
    plimsoll_pool_unpin(pool);
    return result;
}

#define ALLOCATE_FROM_CURRENT(symbol, stream)                                                                \
    do {                                                                                                     \
        uint64_t context;                                                                                    \
        struct plimsoll_charge charge;                                                                       \
        if (!plimsoll_begin(&charge, #symbol))                                                               \
            return charge.refusal ? charge.refusal : REAL(symbol)(dptr, bytesize, hStream);                  \
        if (is_capturing(stream))                                                                            \
            return REAL(symbol)(dptr, bytesize, hStream);                                                    \
        charge.gpu = plimsoll_gpu_of_stream(stream, &context);                                               \
        struct plimsoll_pool *pool = plimsoll_pool_current(charge.gpu);                                      \
        if (plimsoll_pool_reserve(&charge, pool, bytesize))                                                  \
            return charge.refusal;                                                                           \
        CUresult result = allocate_from(pool, dptr, bytesize, stream);                                       \
        return plimsoll_pool_commit(&charge, pool, result, result == CUDA_SUCCESS ? *dptr : 0, stream,       \
                                    context);                                                                \
    } while (0)

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    ALLOCATE_FROM_CURRENT(cuMemAllocAsync, hStream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    ALLOCATE_FROM_CURRENT(cuMemAllocAsync_ptsz, plimsoll_per_thread(hStream));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool_, CUstream hStream) {
    ALLOCATE_POOLED(cuMemAllocFromPoolAsync, dptr, bytesize, hStream, plimsoll_pool_of(pool_), dptr, bytesize,
                    pool_, hStream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool_,
                                      CUstream hStream) {
    ALLOCATE_POOLED(cuMemAllocFromPoolAsync_ptsz, dptr, bytesize, plimsoll_per_thread(hStream),
                    plimsoll_pool_of(pool_), dptr, bytesize, pool_, hStream);
}

/* --- pools come and go -----------------------------------------------------------------------------------
 */

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
    struct plimsoll_charge charge;
    if (!plimsoll_begin(&charge, "cuMemPoolCreate"))
        return charge.refusal ? charge.refusal : REAL(cuMemPoolCreate)(pool, poolProps);
    struct plimsoll_pool *record =
        plimsoll_pool_take(poolProps ? plimsoll_gpu_of_location(&poolProps->location) : GPU_NONE);
    if (!record)
        return CUDA_ERROR_OUT_OF_MEMORY; /* a thousand pools: more would go uncounted */
    plimsoll_depth++;
    CUresult result = plimsoll_leave_hook(REAL(cuMemPoolCreate)(pool, poolProps));
    if (result == CUDA_SUCCESS)
        plimsoll_pool_made(record, *pool);
    else
        plimsoll_pool_drop(record);
    return result;
}

/* Forgotten before the call, for the reason given at PLIMSOLL_FREE. */
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    struct plimsoll_holding known;
    bool is_known =
        plimsoll_depth == 0 && plimsoll_holdings_take(&plimsoll.holdings, HELD_POOL, (uintptr_t)pool, &known);
    struct plimsoll_pool *record = is_known ? &plimsoll.pools.records[known.pool - 1] : NULL;
    if (is_known)
        plimsoll_pool_close(record);
    plimsoll_depth++;
    CUresult result = plimsoll_leave_hook(REAL(cuMemPoolDestroy)(pool));
    if (!is_known)
        return result;
    plimsoll_pool_closed(record, result == CUDA_SUCCESS);
    if (result != CUDA_SUCCESS)
        plimsoll_remember(known);
    plimsoll_pools_changed();
    return result;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
    plimsoll_depth++;
    CUresult result = plimsoll_leave_hook(REAL(cuDeviceSetMemPool)(dev, pool));
    plimsoll_pools_changed();
    return result;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    plimsoll_depth++;
    CUresult result = plimsoll_leave_hook(REAL(cuMemSetMemPool)(location, type, pool));
    plimsoll_pools_changed();
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
    CUresult result = REAL(cuMemPoolTrimTo)(pool, minBytesToKeep);
    if (result == CUDA_SUCCESS && plimsoll_depth == 0 && plimsoll_is_attached()) {
        struct plimsoll_pool *record = plimsoll_pool_of(pool);
        if (record)
            plimsoll_pool_update(record);
    }
    return result;
}
