/* The charge of a pool around an allocation.
 *
 * Before the allocation, the charge is what lives in the pool with it, in the chunks by which pools grow, so
 * that the driver does not pass the line in the meantime. After the allocation, the charge is what the driver
 * has reserved. Several threads may be between the two. A charge is lowered only by an answer that no
 * allocation can have overtaken: no allocation was under way at the query, and none began since. Any answer
 * may raise the charge.
 */
#include "memory/pools/pools.h"

#include <sched.h>

#include "driver/driver.h"
#include "memory/bytes.h"
#include "memory/ledger.h"

/* --- the records ------------------------------------------------------------------------------------------
 */

struct plimsoll_pool *plimsoll_pool_take(int gpu) {
    struct plimsoll_pool *free = NULL;
    pthread_mutex_lock(&plimsoll_pools()->lock);
    for (unsigned i = 0; i < PLIMSOLL_POOLS && !free; i++)
        if (!plimsoll_pools()->records[i].is_taken)
            free = &plimsoll_pools()->records[i];
    if (free) {
        pthread_mutex_lock(&free->lock);
        free->handle = 0;
        free->live_bytes = free->charged_bytes = 0;
        free->started++; /* an answer about the pool before says nothing about this one */
        free->demand_bytes = free->orphan_bytes = 0;
        free->in_flight = 0;
        free->gpu = gpu;
        free->pins = 0;
        free->is_graphs = free->is_slack = free->is_closing = free->is_destroyed = false;
        free->is_taken = true;
        pthread_mutex_unlock(&free->lock);
        if (plimsoll_pool_index(free) >= plimsoll_pools()->count)
            __atomic_store_n(&plimsoll_pools()->count, (unsigned)plimsoll_pool_index(free) + 1,
                             __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&plimsoll_pools()->lock);
    return free;
}

void plimsoll_pool_drop(struct plimsoll_pool *pool) {
    pthread_mutex_lock(&plimsoll_pools()->lock);
    pthread_mutex_lock(&pool->lock);
    pool->is_taken = false;
    pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&plimsoll_pools()->lock);
}

void plimsoll_pools_reset(void) {
    for (unsigned i = 0; i < plimsoll_pools()->count; i++)
        plimsoll_pools()->records[i] = (struct plimsoll_pool){.lock = PTHREAD_MUTEX_INITIALIZER};
    plimsoll_pools()->lock = plimsoll_pools()->learn_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    plimsoll_pools()->count = 0;
    plimsoll_pools()->has_slack = 0;
    for (int gpu = 0; gpu < (int)PLIMSOLL_MAX_GPUS; gpu++) {
        plimsoll_pools()->current[gpu] = 0;
        plimsoll_pools()->graphs[gpu] = 0;
    }
}

/* --- what the driver has, and what is charged for it -----------------------------------------------------
 */

CUmemoryPool plimsoll_pool_pin(struct plimsoll_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    uint64_t handle = pool->is_closing ? 0 : pool->handle;
    pool->pins += handle != 0;
    pthread_mutex_unlock(&pool->lock);
    return (CUmemoryPool)(uintptr_t)handle;
}

void plimsoll_pool_unpin(struct plimsoll_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->pins--;
    pthread_mutex_unlock(&pool->lock);
}

static bool is_pinned(struct plimsoll_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    bool is_so = pool->pins > 0;
    pthread_mutex_unlock(&pool->lock);
    return is_so;
}

uint64_t plimsoll_pool_reserved(struct plimsoll_pool *pool) {
    cuuint64_t bytes = 0;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    CUmemoryPool handle = pool->is_graphs ? NULL : plimsoll_pool_pin(pool);
    if (pool->is_graphs)
        result = CALLED(cuDeviceGetGraphMemAttribute)(pool->device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                                      &bytes);
    else if (handle)
        result = CALLED(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
    if (handle)
        plimsoll_pool_unpin(pool);
    return result == CUDA_SUCCESS ? bytes : 0;
}

/* A destroyed pool gives freed memory back at once, and can no longer be queried. */
static uint64_t least_bytes(const struct plimsoll_pool *pool, uint64_t reserved_bytes) {
    uint64_t live =
        pool->is_destroyed ? plimsoll_rounded(pool->live_bytes, PLIMSOLL_BLOCK_BYTES) : pool->live_bytes;
    return reserved_bytes > live ? reserved_bytes : live;
}

uint64_t plimsoll_pool_settle(struct plimsoll_pool *pool, uint64_t reserved_bytes, uint64_t started) {
    uint64_t surplus = 0, missing = 0;
    pthread_mutex_lock(&pool->lock);
    uint64_t least = least_bytes(pool, reserved_bytes);
    if (least > pool->charged_bytes) {
        missing = least - pool->charged_bytes;
    } else if (pool->in_flight == 0 && pool->started == started) {
        surplus = pool->charged_bytes - least;
        pool->charged_bytes = least;
        pool->is_slack = !pool->is_graphs && least > plimsoll_rounded(pool->live_bytes, PLIMSOLL_BLOCK_BYTES);
    }
    if (pool->is_slack)
        __atomic_store_n(&plimsoll_pools()->has_slack, 1, __ATOMIC_RELEASE);
    int gpu = pool->gpu; /* once a pool is destroyed, its record may become another pool's, on another GPU */
    pthread_mutex_unlock(&pool->lock);
    plimsoll_uncharge_and_tell(gpu, surplus);
    return missing;
}

uint64_t plimsoll_pool_started(struct plimsoll_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    uint64_t started = pool->started;
    pthread_mutex_unlock(&pool->lock);
    return started;
}

void plimsoll_pool_update(struct plimsoll_pool *pool) {
    uint64_t started = plimsoll_pool_started(pool);
    plimsoll_depth++;
    uint64_t reserved_bytes = plimsoll_pool_reserved(pool);
    plimsoll_depth--;
    plimsoll_pool_settle(pool, reserved_bytes, started);
}

void plimsoll_pools_update(void) {
    if (!__atomic_exchange_n(&plimsoll_pools()->has_slack, 0, __ATOMIC_ACQ_REL))
        return;
    for (unsigned i = 0; i < __atomic_load_n(&plimsoll_pools()->count, __ATOMIC_ACQUIRE); i++) {
        struct plimsoll_pool *pool = &plimsoll_pools()->records[i];
        pthread_mutex_lock(&pool->lock);
        bool is_slack = pool->is_taken && pool->is_slack;
        pthread_mutex_unlock(&pool->lock);
        if (is_slack)
            plimsoll_pool_update(pool);
    }
}

/* Trimming takes no part in a capture, and must not break one that this thread has under way. */
void plimsoll_pool_trim(struct plimsoll_pool *pool) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUmemoryPool handle = pool->is_graphs ? NULL : plimsoll_pool_pin(pool);
    bool is_relaxed = HAS(cuThreadExchangeStreamCaptureMode) &&
                      CALLED(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS;
    if (pool->is_graphs)
        REAL(cuDeviceGraphMemTrim)(pool->device);
    else if (handle)
        REAL(cuMemPoolTrimTo)(handle, 0);
    if (is_relaxed)
        CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    if (handle)
        plimsoll_pool_unpin(pool);
}

/* --- allocating and freeing ------------------------------------------------------------------------------
 */

void plimsoll_pool_enter(struct plimsoll_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->started++;
    pool->in_flight++;
    pthread_mutex_unlock(&pool->lock);
}

void plimsoll_pool_leave(struct plimsoll_pool *pool, uint64_t unused_bytes) {
    pthread_mutex_lock(&pool->lock);
    pool->in_flight--;
    pool->live_bytes -= unused_bytes;
    pthread_mutex_unlock(&pool->lock);
}

/* Finds and drops the record in one step. The later of two threads that free the last memory may come
 * when the record is already a new pool's. */
static void drop_if_empty(struct plimsoll_pool *pool) {
    pthread_mutex_lock(&plimsoll_pools()->lock);
    pthread_mutex_lock(&pool->lock);
    if (pool->is_destroyed && pool->live_bytes == 0 && pool->in_flight == 0)
        pool->is_taken = pool->is_destroyed = false;
    pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&plimsoll_pools()->lock);
}

void plimsoll_pool_returned(const struct plimsoll_holding *holding) {
    struct plimsoll_pool *pool = &plimsoll_pools()->records[holding->pool - 1];
    pthread_mutex_lock(&pool->lock);
    pool->live_bytes -= holding->bytes;
    pool->is_slack = true;
    bool is_destroyed = pool->is_destroyed;
    uint64_t started = pool->started;
    pthread_mutex_unlock(&pool->lock);
    __atomic_store_n(&plimsoll_pools()->has_slack, 1, __ATOMIC_RELEASE);
    if (!is_destroyed)
        return;
    plimsoll_pool_settle(pool, 0, started);
    drop_if_empty(pool);
}

void plimsoll_pool_close(struct plimsoll_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->is_closing = true;
    pthread_mutex_unlock(&pool->lock);
    while (is_pinned(pool))
        sched_yield(); /* a query takes the driver a microsecond */
}

void plimsoll_pool_closed(struct plimsoll_pool *pool, bool is_destroyed) {
    pthread_mutex_lock(&pool->lock);
    pool->is_closing = false;
    if (is_destroyed)
        pool->handle = 0;
    pool->is_destroyed = is_destroyed;
    uint64_t started = pool->started;
    pthread_mutex_unlock(&pool->lock);
    if (!is_destroyed)
        return;
    plimsoll_pool_settle(pool, 0, started);
    drop_if_empty(pool);
}

/* --- room ------------------------------------------------------------------------------------------------
 */

static bool is_short(int gpu, uint64_t bytes) {
    uint64_t line_bytes = __atomic_load_n(&plimsoll.gpus[gpu].line_bytes, __ATOMIC_RELAXED);
    uint64_t granted_bytes = __atomic_load_n(&plimsoll.gpus[gpu].granted_bytes, __ATOMIC_RELAXED);
    uint64_t most_bytes = granted_bytes < line_bytes ? granted_bytes : line_bytes;
    uint64_t used_bytes = plimsoll_used((unsigned)gpu);
    return used_bytes > most_bytes || bytes > most_bytes - used_bytes;
}

static void update_all(int gpu, uint64_t bytes, bool is_trimmed) {
    for (unsigned i = 0;
         i < __atomic_load_n(&plimsoll_pools()->count, __ATOMIC_ACQUIRE) && is_short(gpu, bytes); i++) {
        struct plimsoll_pool *pool = &plimsoll_pools()->records[i];
        pthread_mutex_lock(&pool->lock);
        bool has_some = pool->is_taken && pool->gpu == gpu && pool->charged_bytes > pool->live_bytes;
        pthread_mutex_unlock(&pool->lock);
        if (!has_some)
            continue;
        if (is_trimmed)
            plimsoll_pool_trim(pool);
        plimsoll_pool_update(pool);
    }
}

/* The driver does the same when a card is full: an allocation takes precedence over a pool's unused
 * memory. */
void plimsoll_pools_make_room(int gpu, uint64_t bytes) {
    if (gpu < 0 || plimsoll_is_whole() || __atomic_load_n(&plimsoll_pools()->count, __ATOMIC_ACQUIRE) == 0)
        return;
    plimsoll_depth++;
    update_all(gpu, bytes, false);
    update_all(gpu, bytes, true);
    plimsoll_depth--;
}
