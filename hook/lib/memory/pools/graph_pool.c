/* The driver's pool for graphs, one a GPU: charged like any other, by what its graphs can make it hold. */
#include "memory/pools/inside.h"

#include "broker/attach.h"
#include "driver/driver.h"
#include "driver/gpus.h"
#include "memory/ledger.h"

static CUdevice device_of(int gpu) {
    int count = 0;
    CALLED(cuDeviceGetCount)(&count);
    for (int device = 0; device < count; device++)
        if (plimsoll_gpu_of_device(device) == gpu)
            return device;
    return -1;
}

static struct plimsoll_pool *known_graph_pool(int gpu) {
    unsigned place = gpu < 0 ? 0 : __atomic_load_n(&plimsoll_pools()->graphs[gpu], __ATOMIC_ACQUIRE);
    return place ? &plimsoll_pools()->records[place - 1] : NULL;
}

static struct plimsoll_pool *graph_pool(int gpu) {
    struct plimsoll_pool *pool = known_graph_pool(gpu);
    if (pool)
        return pool;
    CUdevice device = device_of(gpu);
    pthread_mutex_lock(&plimsoll_pools()->learn_lock);
    pool = known_graph_pool(gpu);
    if (!pool && (pool = plimsoll_pool_take(gpu, 0))) {
        pthread_mutex_lock(&pool->lock);
        pool->is_graphs = true;
        pool->device = device;
        pthread_mutex_unlock(&pool->lock);
        __atomic_store_n(&plimsoll_pools()->graphs[gpu], (unsigned)plimsoll_pool_index(pool) + 1,
                         __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&plimsoll_pools()->learn_lock);
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
    plimsoll_pool_enter(pool);
    for (uint64_t growth; (growth = growth_of(pool, bytes)) > 0; bytes -= growth)
        if (!plimsoll_pool_charge(pool, growth, &charge)) {
            plimsoll_pool_leave(pool, 0);
            return false;
        }
    return true;
}

static void settle_graphs(struct plimsoll_pool *pool, uint64_t started) {
    plimsoll_depth++;
    uint64_t reserved_bytes = plimsoll_pool_reserved(pool);
    plimsoll_depth--;
    pthread_mutex_lock(&pool->lock);
    /* A graph launched after the question may be destroyed before the answer is used: it is not in it. */
    bool is_overtaken = pool->in_flight > 0 || pool->started != started;
    if (!is_overtaken && pool->orphan_bytes > reserved_bytes)
        pool->orphan_bytes = reserved_bytes;
    pthread_mutex_unlock(&pool->lock);
    uint64_t missing = plimsoll_pool_settle(pool, reserved_bytes, started);
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
    uint64_t started = plimsoll_pool_started(pool);
    plimsoll_pool_leave(pool, 0);
    settle_graphs(pool, started);
}

void plimsoll_graph_pool_look(int gpu) {
    struct plimsoll_pool *pool = known_graph_pool(gpu);
    if (pool)
        settle_graphs(pool, plimsoll_pool_started(pool));
}
