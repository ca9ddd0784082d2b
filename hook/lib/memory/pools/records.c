#include "memory/pools/records.h"

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
