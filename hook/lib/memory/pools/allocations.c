#include "memory/pools/pools.h"

#include "broker/broker.h"
#include "driver/driver.h"
#include "memory/bytes.h"
#include "memory/charge.h"
#include "memory/release.h"

/* NVIDIA's pools grow by chunks of this size. */
#define CHUNK_BYTES 0x2000000u

/* The alignment of what pools hand out. */
#define GRAIN_BYTES 512u

/* Adds `bytes` to what lives in the pool, if the pool's charge covers them. Otherwise false, with the bytes
 * to charge first. */
static bool join(struct plimsoll_pool *pool, uint64_t bytes, uint64_t *missing) {
    pthread_mutex_lock(&pool->lock);
    uint64_t with_it = plimsoll_plus(pool->live_bytes, bytes);
    uint64_t needed = plimsoll_rounded(with_it, CHUNK_BYTES);
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

static bool charge_pool(struct plimsoll_pool *pool, uint64_t bytes, const struct plimsoll_charge *charge) {
    struct plimsoll_charge part = {.function = charge->function, .bytes = bytes, .gpu = pool->gpu};
    plimsoll_pool_leave(pool, 0);
    bool fits = plimsoll_reserve_patiently(&part, 0);
    plimsoll_pool_enter(pool);
    pthread_mutex_lock(&pool->lock);
    pool->charged_bytes += fits ? bytes : 0;
    pthread_mutex_unlock(&pool->lock);
    return fits;
}

/* Room is made once, and before this thread enters: making room may lower the very charge that is to be
 * raised. If the charge is refused, another thread may meanwhile have made the pool grow enough for both. */
static bool enter_charged(struct plimsoll_pool *pool, const struct plimsoll_charge *charge) {
    uint64_t missing, bytes = charge->bytes;
    plimsoll_pool_enter(pool);
    if (join(pool, bytes, &missing))
        return true;
    plimsoll_pool_leave(pool, 0);
    plimsoll_pools_make_room(pool->gpu, missing);
    plimsoll_pool_enter(pool);
    while (!join(pool, bytes, &missing)) {
        if (charge_pool(pool, missing, charge))
            continue;
        bool has_joined = join(pool, bytes, &missing);
        if (!has_joined)
            plimsoll_pool_leave(pool, 0);
        return has_joined;
    }
    return true;
}

CUresult plimsoll_pool_reserve(struct plimsoll_charge *charge, struct plimsoll_pool *pool, uint64_t bytes) {
    if (!pool || pool->gpu < 0)
        return plimsoll_reserve(charge, pool ? pool->gpu : charge->gpu, bytes);
    charge->gpu = pool->gpu;
    charge->bytes = plimsoll_rounded(bytes, GRAIN_BYTES);
    plimsoll_refresh();
    if (!enter_charged(pool, charge))
        return charge->refusal = CUDA_ERROR_OUT_OF_MEMORY;
    plimsoll_depth++;
    return CUDA_SUCCESS;
}

/* The driver made the pool grow by more than expected, and the line forbids that: restores the state before
 * the allocation. */
static CUresult undo(struct plimsoll_pool *pool, CUdeviceptr pointer, uint64_t bytes, CUstream stream) {
    REAL(cuMemFreeAsync)(pointer, stream);
    pthread_mutex_lock(&pool->lock);
    pool->live_bytes -= bytes;
    pool->is_slack = true;
    pthread_mutex_unlock(&pool->lock);
    plimsoll_pool_trim(pool);
    plimsoll_pool_update(pool);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult finish(struct plimsoll_charge *charge, struct plimsoll_pool *pool, CUresult result,
                       CUdeviceptr pointer, CUstream stream) {
    uint64_t started = plimsoll_pool_started(pool);
    uint64_t reserved_bytes = plimsoll_pool_reserved(pool);
    plimsoll_pool_leave(pool, result == CUDA_SUCCESS ? 0 : charge->bytes);
    uint64_t missing = plimsoll_pool_settle(pool, reserved_bytes, started);
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
                                                    .pool = (uint32_t)plimsoll_pool_index(pool) + 1,
                                                    .gpu = (int16_t)pool->gpu,
                                                    .kind = HELD_MEMORY});
    return result;
}

/* A thread waits outside the pool, whose charge other threads may lower meanwhile. So the growth is computed
 * again after each charge. */
bool plimsoll_graph_pool_enter(int gpu, uint64_t bytes, const char *function) {
    struct plimsoll_pool *pool = plimsoll_graph_pool_of(gpu);
    struct plimsoll_charge charge = {.function = function};
    if (!pool)
        return false;
    plimsoll_refresh();
    plimsoll_pools_make_room(gpu, plimsoll_graph_pool_growth(pool, bytes));
    plimsoll_pool_enter(pool);
    for (uint64_t growth; (growth = plimsoll_graph_pool_growth(pool, bytes)) > 0; bytes -= growth)
        if (!charge_pool(pool, growth, &charge)) {
            plimsoll_pool_leave(pool, 0);
            return false;
        }
    return true;
}
