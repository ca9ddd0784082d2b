/* The driver's pool for graphs, one per GPU. It is charged like any other pool, by the most that its graphs
 * can make it hold. */
#include "memory/pools/graph_pool.h"

#include "driver/gpus.h"
#include "memory/ledger.h"
#include "memory/pools/records.h"
#include "memory/pools/reserved.h"

static struct plimsoll_pool *known_graph_pool(int gpu) {
    unsigned place = gpu < 0 ? 0 : __atomic_load_n(&plimsoll_pools()->graphs[gpu], __ATOMIC_ACQUIRE);
    return place ? &plimsoll_pools()->records[place - 1] : NULL;
}

struct plimsoll_pool *plimsoll_graph_pool_of(int gpu) {
    struct plimsoll_pool *pool = known_graph_pool(gpu);
    if (pool)
        return pool;
    CUdevice device = plimsoll_device_of_gpu(gpu);
    pthread_mutex_lock(&plimsoll_pools()->learn_lock);
    pool = known_graph_pool(gpu);
    if (!pool && (pool = plimsoll_pool_take(gpu))) {
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
    struct plimsoll_pool *pool = plimsoll_graph_pool_of(gpu);
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

/* No graph maps more than its nodes need, so all graphs together hold no more than the sum. */
uint64_t plimsoll_graph_pool_growth(struct plimsoll_pool *pool, uint64_t bytes) {
    pthread_mutex_lock(&pool->lock);
    uint64_t most = pool->demand_bytes + pool->orphan_bytes;
    uint64_t growth = most > pool->charged_bytes ? most - pool->charged_bytes : 0;
    pthread_mutex_unlock(&pool->lock);
    return growth < bytes ? growth : bytes;
}

static void settle_graphs(struct plimsoll_pool *pool, uint64_t started) {
    plimsoll_depth++;
    uint64_t reserved_bytes = plimsoll_pool_reserved(pool);
    plimsoll_depth--;
    pthread_mutex_lock(&pool->lock);
    /* a graph launched after the query may be destroyed before the answer is used: the answer does not
     * include it */
    bool is_overtaken = pool->in_flight > 0 || pool->started != started;
    if (!is_overtaken && pool->orphan_bytes > reserved_bytes)
        pool->orphan_bytes = reserved_bytes;
    pthread_mutex_unlock(&pool->lock);
    uint64_t missing = plimsoll_pool_settle(pool, reserved_bytes, started);
    if (missing == 0)
        return;
    /* the graph runs already: the memory that it took is counted, whatever the line says */
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

void plimsoll_graph_pool_update(int gpu) {
    struct plimsoll_pool *pool = known_graph_pool(gpu);
    if (pool)
        settle_graphs(pool, plimsoll_pool_started(pool));
}
