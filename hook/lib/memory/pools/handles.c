#include "memory/pools/pools.h"

#include "driver/driver.h"
#include "memory/current.h"

void plimsoll_pool_made(struct plimsoll_pool *pool, CUmemoryPool handle) {
    pthread_mutex_lock(&pool->lock);
    pool->handle = (uintptr_t)handle;
    pthread_mutex_unlock(&pool->lock);
    plimsoll_holdings_put(&plimsoll.holdings,
                          (struct plimsoll_holding){.key = (uintptr_t)handle,
                                                    .pool = (uint32_t)plimsoll_pool_index(pool) + 1,
                                                    .gpu = (int16_t)pool->gpu,
                                                    .kind = HELD_POOL});
}

/* The driver makes a device's own pools. No hook sees such a pool before its first use here. */
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

/* Two threads may meet a pool for the first time at once: the second finds it known. */
static struct plimsoll_pool *learn(CUmemoryPool handle) {
    struct plimsoll_holding known;
    int gpu = ask_devices(handle);
    pthread_mutex_lock(&plimsoll_pools()->learn_lock);
    struct plimsoll_pool *pool = NULL;
    if (plimsoll_holdings_get(&plimsoll.holdings, HELD_POOL, (uintptr_t)handle, &known))
        pool = &plimsoll_pools()->records[known.pool - 1];
    else if ((pool = plimsoll_pool_take(gpu)))
        plimsoll_pool_made(pool, handle);
    pthread_mutex_unlock(&plimsoll_pools()->learn_lock);
    return pool;
}

struct plimsoll_pool *plimsoll_pool_of(CUmemoryPool handle) {
    struct plimsoll_holding known;
    if (plimsoll_holdings_get(&plimsoll.holdings, HELD_POOL, (uintptr_t)handle, &known))
        return &plimsoll_pools()->records[known.pool - 1];
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
    uint64_t word = __atomic_load_n(&plimsoll_pools()->current[gpu], __ATOMIC_ACQUIRE);
    if (word & 0xffff)
        return &plimsoll_pools()->records[(word & 0xffff) - 1];
    struct plimsoll_pool *pool = ask_current(gpu);
    if (pool)
        __atomic_compare_exchange_n(&plimsoll_pools()->current[gpu], &word,
                                    word | (plimsoll_pool_index(pool) + 1), false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED);
    return pool;
}

static void change_current(int gpu) {
    uint64_t word = __atomic_load_n(&plimsoll_pools()->current[gpu], __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&plimsoll_pools()->current[gpu], &word, ((word >> 16) + 1) << 16,
                                        false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
}

void plimsoll_pools_changed(void) {
    for (int gpu = 0; gpu < (int)PLIMSOLL_MAX_GPUS; gpu++)
        change_current(gpu);
}
