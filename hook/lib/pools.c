/* How a pool is charged.
 *
 * Before an allocation: what lives in the pool with it, in the chunks by which pools grow, so that the driver
 * does not pass the line in the meantime. After it: what the driver says it has reserved. Several threads may
 * be between the two; a charge is lowered only by an answer that no allocation can have overtaken, one asked
 * for when none was under way and none began since. It is raised by any.
 */
#include "pools.h"

#include "charge.h"
#include "attach.h"
#include "driver.h"
#include "gpus.h"
#include "ledger.h"
#include "room.h"

#include <sched.h>

/* By how much NVIDIA's pools grow; what they keep, they keep in blocks. */
#define CHUNK_BYTES 0x2000000u
#define BLOCK_BYTES 0x200000u
/* The alignment of what they hand out. */
#define GRAIN_BYTES 512u

static struct plimsoll_pools *all(void) {
    return &plimsoll.pools;
}

static uint64_t rounded(uint64_t bytes, uint64_t to) {
    uint64_t over = bytes % to;
    return over == 0 ? bytes : bytes > UINT64_MAX - to ? UINT64_MAX : bytes - over + to;
}

static uint64_t index_of(const struct plimsoll_pool *pool) {
    return (uint64_t)(pool - all()->records);
}

/* --- records ---------------------------------------------------------------------------------------------
 */

struct plimsoll_pool *plimsoll_pool_take(int gpu, uint64_t handle) {
    struct plimsoll_pool *free = NULL;
    pthread_mutex_lock(&all()->lock);
    for (unsigned i = 0; i < PLIMSOLL_POOLS && !free; i++)
        if (!all()->records[i].is_taken)
            free = &all()->records[i];
    if (free) {
        pthread_mutex_lock(&free->lock);
        free->handle = handle;
        free->live_bytes = free->charged_bytes = 0;
        free->started++; /* what was asked about the pool before says nothing about this one */
        free->demand_bytes = free->orphan_bytes = 0;
        free->in_flight = 0;
        free->gpu = gpu;
        free->pins = 0;
        free->is_graphs = free->is_slack = free->is_closing = free->is_destroyed = false;
        free->is_taken = true;
        pthread_mutex_unlock(&free->lock);
        if (index_of(free) >= all()->count)
            __atomic_store_n(&all()->count, (unsigned)index_of(free) + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&all()->lock);
    return free;
}

void plimsoll_pool_drop(struct plimsoll_pool *pool) {
    pthread_mutex_lock(&all()->lock);
    pthread_mutex_lock(&pool->lock);
    pool->is_taken = false;
    pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&all()->lock);
}

void plimsoll_pool_made(struct plimsoll_pool *pool, CUmemoryPool handle) {
    pthread_mutex_lock(&pool->lock);
    pool->handle = (uintptr_t)handle;
    pthread_mutex_unlock(&pool->lock);
    plimsoll_holdings_put(&plimsoll.holdings, (struct plimsoll_holding){.key = (uintptr_t)handle,
                                                                        .pool = (uint32_t)index_of(pool) + 1,
                                                                        .gpu = (int16_t)pool->gpu,
                                                                        .kind = HELD_POOL});
}

/* A device's own pools are made by the driver, so their first use here is the first this library hears. */
static int ask_devices(CUmemoryPool pool) {
    int count = 0;
    CUmemoryPool other;
    if (!HAS(cuDeviceGetDefaultMemPool) || CALLED(cuDeviceGetCount)(&count) != CUDA_SUCCESS)
        return plimsoll_gpu_of_current();
    for (int device = 0; device < count; device++) {
        bool is_its = (CALLED(cuDeviceGetDefaultMemPool)(&other, device) == CUDA_SUCCESS && other == pool) ||
                      (CALLED(cuDeviceGetMemPool)(&other, device) == CUDA_SUCCESS && other == pool);
        if (is_its)
            return plimsoll_gpu_of_device(device);
    }
    return plimsoll_gpu_of_current();
}

/* Two threads may learn of one pool at once: the second finds it known. */
static struct plimsoll_pool *learn(CUmemoryPool handle) {
    struct plimsoll_holding known;
    int gpu = ask_devices(handle);
    pthread_mutex_lock(&all()->learn_lock);
    struct plimsoll_pool *pool = NULL;
    if (plimsoll_holdings_get(&plimsoll.holdings, HELD_POOL, (uintptr_t)handle, &known))
        pool = &all()->records[known.pool - 1];
    else if ((pool = plimsoll_pool_take(gpu, 0)))
        plimsoll_pool_made(pool, handle);
    pthread_mutex_unlock(&all()->learn_lock);
    return pool;
}

struct plimsoll_pool *plimsoll_pool_of(CUmemoryPool handle) {
    struct plimsoll_holding known;
    if (plimsoll_holdings_get(&plimsoll.holdings, HELD_POOL, (uintptr_t)handle, &known))
        return &all()->records[known.pool - 1];
    return learn(handle);
}

static struct plimsoll_pool *ask_current(int gpu) {
    int count = 0;
    CUmemoryPool handle;
    if (CALLED(cuDeviceGetCount)(&count) != CUDA_SUCCESS)
        return NULL;
    for (int device = 0; device < count; device++)
        if (plimsoll_gpu_of_device(device) == gpu)
            return CALLED(cuDeviceGetMemPool)(&handle, device) == CUDA_SUCCESS ? plimsoll_pool_of(handle)
                                                                               : NULL;
    return NULL;
}

struct plimsoll_pool *plimsoll_pool_current(int gpu) {
    if (gpu < 0)
        return NULL;
    uint64_t word = __atomic_load_n(&all()->current[gpu], __ATOMIC_ACQUIRE);
    if (word & 0xffff)
        return &all()->records[(word & 0xffff) - 1];
    struct plimsoll_pool *pool = ask_current(gpu);
    if (pool)
        __atomic_compare_exchange_n(&all()->current[gpu], &word, word | (index_of(pool) + 1), false,
                                    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    return pool;
}

static void change_current(int gpu) {
    uint64_t word = __atomic_load_n(&all()->current[gpu], __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&all()->current[gpu], &word, ((word >> 16) + 1) << 16, false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
}

void plimsoll_pools_changed(void) {
    for (int gpu = 0; gpu < (int)PLIMSOLL_MAX_GPUS; gpu++)
        change_current(gpu);
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

static uint64_t ask_reserved(struct plimsoll_pool *pool) {
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

static void uncharge(int gpu, uint64_t bytes) {
    struct plimsoll_holding charged = {.gpu = (int16_t)gpu, .bytes = bytes};
    if (bytes > 0)
        plimsoll_give_back(&charged);
}

/* A destroyed pool gives back what is freed of it at once, and no longer tells. */
static uint64_t least_bytes(const struct plimsoll_pool *pool, uint64_t reserved_bytes) {
    uint64_t live = pool->is_destroyed ? rounded(pool->live_bytes, BLOCK_BYTES) : pool->live_bytes;
    return reserved_bytes > live ? reserved_bytes : live;
}

/* Lowers the charge where the answer, asked for when `started` allocations had begun, cannot have been
 * overtaken. Returns by how much the charge is too low. */
static uint64_t settle(struct plimsoll_pool *pool, uint64_t reserved_bytes, uint64_t started) {
    uint64_t surplus = 0, missing = 0;
    pthread_mutex_lock(&pool->lock);
    uint64_t least = least_bytes(pool, reserved_bytes);
    if (least > pool->charged_bytes) {
        missing = least - pool->charged_bytes;
    } else if (pool->in_flight == 0 && pool->started == started) {
        surplus = pool->charged_bytes - least;
        pool->charged_bytes = least;
        pool->is_slack = !pool->is_graphs && least > rounded(pool->live_bytes, BLOCK_BYTES);
    }
    if (pool->is_slack)
        __atomic_store_n(&all()->has_slack, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&pool->lock);
    uncharge(pool->gpu, surplus);
    return missing;
}

static uint64_t started_of(struct plimsoll_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    uint64_t started = pool->started;
    pthread_mutex_unlock(&pool->lock);
    return started;
}

void plimsoll_pool_look(struct plimsoll_pool *pool) {
    uint64_t started = started_of(pool);
    plimsoll_depth++;
    uint64_t reserved_bytes = ask_reserved(pool);
    plimsoll_depth--;
    settle(pool, reserved_bytes, started);
}

void plimsoll_pools_look(void) {
    if (!__atomic_exchange_n(&all()->has_slack, 0, __ATOMIC_ACQ_REL))
        return;
    for (unsigned i = 0; i < __atomic_load_n(&all()->count, __ATOMIC_ACQUIRE); i++) {
        struct plimsoll_pool *pool = &all()->records[i];
        pthread_mutex_lock(&pool->lock);
        bool is_slack = pool->is_taken && pool->is_slack;
        pthread_mutex_unlock(&pool->lock);
        if (is_slack)
            plimsoll_pool_look(pool);
    }
}

/* Trimming takes no part in a capture, and must not break one that this thread has under way. */
static void trim(struct plimsoll_pool *pool) {
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

/* Takes part in what is charged already. False, with the bytes to charge first, if that is too little. */
static bool join(struct plimsoll_pool *pool, uint64_t bytes, uint64_t *missing) {
    pthread_mutex_lock(&pool->lock);
    uint64_t with_it = pool->live_bytes > UINT64_MAX - bytes ? UINT64_MAX : pool->live_bytes + bytes;
    uint64_t needed = rounded(with_it, CHUNK_BYTES);
    bool is_covered = needed <= pool->charged_bytes;
    if (is_covered)
        pool->live_bytes = with_it;
    else
        *missing = needed - pool->charged_bytes;
    pthread_mutex_unlock(&pool->lock);
    return is_covered;
}

static bool add_charge(struct plimsoll_pool *pool, uint64_t bytes, const char *function) {
    if (!plimsoll_charge_gpu(pool->gpu, bytes, 0, function))
        return false;
    pthread_mutex_lock(&pool->lock);
    pool->charged_bytes += bytes;
    pthread_mutex_unlock(&pool->lock);
    return true;
}

/* From the one to the other nobody lowers the charge. */
static void enter(struct plimsoll_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->started++;
    pool->in_flight++;
    pthread_mutex_unlock(&pool->lock);
}

static void leave(struct plimsoll_pool *pool, uint64_t unused_bytes) {
    pthread_mutex_lock(&pool->lock);
    pool->in_flight--;
    pool->live_bytes -= unused_bytes;
    pthread_mutex_unlock(&pool->lock);
}

/* Like add_charge, but outside the pool, so that others can go on giving back while this thread waits. */
static bool add_patiently(struct plimsoll_pool *pool, uint64_t bytes, const struct plimsoll_charge *charge) {
    struct plimsoll_charge part = {.function = charge->function, .bytes = bytes, .gpu = pool->gpu};
    leave(pool, 0);
    bool fits = plimsoll_reserve_patiently(&part, 0);
    enter(pool);
    pthread_mutex_lock(&pool->lock);
    pool->charged_bytes += fits ? bytes : 0;
    pthread_mutex_unlock(&pool->lock);
    return fits;
}

/* Room is made once, and before this thread takes part: it may lower the very charge that is to be raised. If
 * the charge is refused, another thread may have made the pool grow for both meanwhile. */
static bool enter_charged(struct plimsoll_pool *pool, const struct plimsoll_charge *charge) {
    uint64_t missing, bytes = charge->bytes;
    enter(pool);
    if (join(pool, bytes, &missing))
        return true;
    leave(pool, 0);
    plimsoll_pools_make_room(pool->gpu, missing);
    enter(pool);
    while (!join(pool, bytes, &missing)) {
        if (add_patiently(pool, missing, charge))
            continue;
        bool has_joined = join(pool, bytes, &missing);
        if (!has_joined)
            leave(pool, 0);
        return has_joined;
    }
    return true;
}

CUresult plimsoll_pool_reserve(struct plimsoll_charge *charge, struct plimsoll_pool *pool, uint64_t bytes) {
    if (!pool || pool->gpu < 0)
        return plimsoll_reserve(charge, pool ? pool->gpu : charge->gpu, bytes);
    charge->gpu = pool->gpu;
    charge->bytes = rounded(bytes, GRAIN_BYTES);
    plimsoll_refresh();
    if (!enter_charged(pool, charge))
        return charge->refusal = CUDA_ERROR_OUT_OF_MEMORY;
    plimsoll_depth++;
    return CUDA_SUCCESS;
}

/* The driver grew the pool by more than it was expected to, and the line forbids: back to what was. */
static CUresult undo(struct plimsoll_pool *pool, CUdeviceptr pointer, uint64_t bytes, CUstream stream) {
    REAL(cuMemFreeAsync)(pointer, stream);
    pthread_mutex_lock(&pool->lock);
    pool->live_bytes -= bytes;
    pool->is_slack = true;
    pthread_mutex_unlock(&pool->lock);
    trim(pool);
    plimsoll_pool_look(pool);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult finish(struct plimsoll_charge *charge, struct plimsoll_pool *pool, CUresult result,
                       CUdeviceptr pointer, CUstream stream) {
    uint64_t started = started_of(pool);
    uint64_t reserved_bytes = ask_reserved(pool);
    leave(pool, result == CUDA_SUCCESS ? 0 : charge->bytes);
    uint64_t missing = settle(pool, reserved_bytes, started);
    if (missing == 0 || add_charge(pool, missing, charge->function) || result != CUDA_SUCCESS)
        return result;
    return undo(pool, pointer, charge->bytes, stream);
}

CUresult plimsoll_pool_commit(struct plimsoll_charge *charge, struct plimsoll_pool *pool, CUresult result,
                              CUdeviceptr pointer, CUstream stream, uint64_t with) {
    if (!pool || pool->gpu < 0)
        return plimsoll_commit(charge, result, HELD_MEMORY, pointer, with);
    result = finish(charge, pool, result, pointer, stream);
    plimsoll_depth--;
    if (result == CUDA_SUCCESS)
        plimsoll_remember((struct plimsoll_holding){.key = pointer,
                                                    .bytes = charge->bytes,
                                                    .with = with,
                                                    .pool = (uint32_t)index_of(pool) + 1,
                                                    .gpu = (int16_t)pool->gpu,
                                                    .kind = HELD_MEMORY});
    return result;
}

/* Found and dropped in one: of two threads that free the last of it, the later one may come when the record
 * is a new pool's already. */
static void drop_if_empty(struct plimsoll_pool *pool) {
    pthread_mutex_lock(&all()->lock);
    pthread_mutex_lock(&pool->lock);
    if (pool->is_destroyed && pool->live_bytes == 0 && pool->in_flight == 0)
        pool->is_taken = pool->is_destroyed = false;
    pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&all()->lock);
}

void plimsoll_pool_returned(const struct plimsoll_holding *holding) {
    struct plimsoll_pool *pool = &all()->records[holding->pool - 1];
    pthread_mutex_lock(&pool->lock);
    pool->live_bytes -= holding->bytes;
    pool->is_slack = true;
    bool is_destroyed = pool->is_destroyed;
    uint64_t started = pool->started;
    pthread_mutex_unlock(&pool->lock);
    __atomic_store_n(&all()->has_slack, 1, __ATOMIC_RELEASE);
    if (!is_destroyed)
        return;
    settle(pool, 0, started);
    drop_if_empty(pool);
}

void plimsoll_pool_close(struct plimsoll_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->is_closing = true;
    pthread_mutex_unlock(&pool->lock);
    while (is_pinned(pool))
        sched_yield(); /* a question takes the driver a microsecond */
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
    settle(pool, 0, started);
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

static void look_at_all(int gpu, uint64_t bytes, bool is_trimmed) {
    for (unsigned i = 0; i < __atomic_load_n(&all()->count, __ATOMIC_ACQUIRE) && is_short(gpu, bytes); i++) {
        struct plimsoll_pool *pool = &all()->records[i];
        pthread_mutex_lock(&pool->lock);
        bool has_some = pool->is_taken && pool->gpu == gpu && pool->charged_bytes > pool->live_bytes;
        pthread_mutex_unlock(&pool->lock);
        if (!has_some)
            continue;
        if (is_trimmed)
            trim(pool);
        plimsoll_pool_look(pool);
    }
}

/* The driver does the same when a card is full: an allocation takes precedence over a pool's idle memory. */
void plimsoll_pools_make_room(int gpu, uint64_t bytes) {
    if (gpu < 0 || plimsoll_is_whole() || __atomic_load_n(&all()->count, __ATOMIC_ACQUIRE) == 0)
        return;
    plimsoll_depth++;
    look_at_all(gpu, bytes, false);
    look_at_all(gpu, bytes, true);
    plimsoll_depth--;
}

/* --- the driver's pool for graphs ------------------------------------------------------------------------
 */

static CUdevice device_of(int gpu) {
    int count = 0;
    CALLED(cuDeviceGetCount)(&count);
    for (int device = 0; device < count; device++)
        if (plimsoll_gpu_of_device(device) == gpu)
            return device;
    return -1;
}

static struct plimsoll_pool *known_graph_pool(int gpu) {
    unsigned place = gpu < 0 ? 0 : __atomic_load_n(&all()->graphs[gpu], __ATOMIC_ACQUIRE);
    return place ? &all()->records[place - 1] : NULL;
}

static struct plimsoll_pool *graph_pool(int gpu) {
    struct plimsoll_pool *pool = known_graph_pool(gpu);
    if (pool)
        return pool;
    CUdevice device = device_of(gpu);
    pthread_mutex_lock(&all()->learn_lock);
    pool = known_graph_pool(gpu);
    if (!pool && (pool = plimsoll_pool_take(gpu, 0))) {
        pthread_mutex_lock(&pool->lock);
        pool->is_graphs = true;
        pool->device = device;
        pthread_mutex_unlock(&pool->lock);
        __atomic_store_n(&all()->graphs[gpu], (unsigned)index_of(pool) + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&all()->learn_lock);
    return pool;
}

void plimsoll_graph_pool_add(int gpu, uint64_t bytes) {
    struct plimsoll_pool *pool = graph_pool(gpu);
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->demand_bytes += bytes;
    pthread_mutex_unlock(&pool->lock);
}

void plimsoll_graph_pool_remove(int gpu, uint64_t bytes) {
    struct plimsoll_pool *pool = known_graph_pool(gpu);
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->demand_bytes -= bytes;
    pool->orphan_bytes += bytes;
    pthread_mutex_unlock(&pool->lock);
}

/* No graph maps more than its nodes need, so all together hold no more than the sum. */
static uint64_t growth_of(struct plimsoll_pool *pool, uint64_t bytes) {
    pthread_mutex_lock(&pool->lock);
    uint64_t most = pool->demand_bytes + pool->orphan_bytes;
    uint64_t growth = most > pool->charged_bytes ? most - pool->charged_bytes : 0;
    pthread_mutex_unlock(&pool->lock);
    return growth < bytes ? growth : bytes;
}

/* Whoever waits does so outside the pool, whose charge others may lower meanwhile: so it looks again. */
bool plimsoll_graph_pool_enter(int gpu, uint64_t bytes, const char *function) {
    struct plimsoll_pool *pool = graph_pool(gpu);
    struct plimsoll_charge charge = {.function = function};
    if (!pool)
        return false;
    plimsoll_refresh();
    plimsoll_pools_make_room(gpu, growth_of(pool, bytes));
    enter(pool);
    for (uint64_t growth; (growth = growth_of(pool, bytes)) > 0; bytes -= growth)
        if (!add_patiently(pool, growth, &charge)) {
            leave(pool, 0);
            return false;
        }
    return true;
}

static void settle_graphs(struct plimsoll_pool *pool, uint64_t started) {
    plimsoll_depth++;
    uint64_t reserved_bytes = ask_reserved(pool);
    plimsoll_depth--;
    pthread_mutex_lock(&pool->lock);
    if (pool->orphan_bytes > reserved_bytes)
        pool->orphan_bytes = reserved_bytes;
    pthread_mutex_unlock(&pool->lock);
    uint64_t missing = settle(pool, reserved_bytes, started);
    if (missing == 0)
        return;
    /* It runs already: what it took is counted, whatever the line says. */
    plimsoll_ledger_add(plimsoll.counts, plimsoll.slot, (unsigned)pool->gpu, missing);
    pthread_mutex_lock(&pool->lock);
    pool->charged_bytes += missing;
    pthread_mutex_unlock(&pool->lock);
}

void plimsoll_graph_pool_leave(int gpu) {
    struct plimsoll_pool *pool = known_graph_pool(gpu);
    uint64_t started = started_of(pool);
    leave(pool, 0);
    settle_graphs(pool, started);
}

void plimsoll_graph_pool_look(int gpu) {
    struct plimsoll_pool *pool = known_graph_pool(gpu);
    if (pool)
        settle_graphs(pool, started_of(pool));
}

void plimsoll_pools_reset(void) {
    for (unsigned i = 0; i < all()->count; i++)
        all()->records[i] = (struct plimsoll_pool){.lock = PTHREAD_MUTEX_INITIALIZER};
    all()->lock = all()->learn_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    all()->count = 0;
    all()->has_slack = 0;
    for (int gpu = 0; gpu < (int)PLIMSOLL_MAX_GPUS; gpu++) {
        all()->current[gpu] = 0;
        all()->graphs[gpu] = 0;
    }
}
