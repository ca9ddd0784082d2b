/* Drives the records of pools directly: a driver stands behind them that knows no pool. */
#include <stdio.h>
#include <stdlib.h>

#include "driver/driver.h"
#include "driver/gpus.h"
#include "memory/current.h"
#include "memory/ledger.h"
#include "memory/pools/pools.h"

#define CHECK(claim)                                                                                         \
    do {                                                                                                     \
        if (!(claim)) {                                                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #claim);                                      \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static CUresult no_driver(void) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

plimsoll_function plimsoll_call(enum plimsoll_index index) {
    (void)index;
    return (plimsoll_function)no_driver;
}

int plimsoll_gpu_of_device(CUdevice device) {
    return device;
}

int plimsoll_gpu_of_current(void) {
    return 0;
}

uint64_t plimsoll_used(unsigned gpu) {
    (void)gpu;
    return 0;
}

void plimsoll_uncharge_and_tell(int gpu, uint64_t bytes) {
    (void)gpu, (void)bytes;
}

static void free_from(struct plimsoll_pool *pool, uint64_t bytes) {
    struct plimsoll_holding holding = {.bytes = bytes, .pool = (uint32_t)(pool - plimsoll.pools.records) + 1};
    plimsoll_pool_returned(&holding);
}

/* Two threads free the last allocations of a destroyed pool. The later thread has only subtracted its bytes
 * when the other drops the record. A third thread then takes the record for a new pool. */
static void late_thread(void) {
    struct plimsoll_pool *destroyed = plimsoll_pool_take(0);
    plimsoll_pool_made(destroyed, (CUmemoryPool)(uintptr_t)0x1000);
    destroyed->live_bytes = 1024;
    plimsoll_pool_close(destroyed);
    plimsoll_pool_closed(destroyed, true);
    free_from(destroyed, 1024);
    struct plimsoll_pool *next = plimsoll_pool_take(0);
    CHECK(next == destroyed);
    free_from(next, 0);
    CHECK(plimsoll_pool_take(0) != next);
}

/* An answer about the pool that had the record before must not lower what the next one is charged. */
static void late_answer(void) {
    struct plimsoll_pool *pool = plimsoll_pool_take(0);
    uint64_t started = pool->started;
    plimsoll_pool_drop(pool);
    CHECK(plimsoll_pool_take(0) == pool);
    CHECK(pool->started != started);
}

int main(void) {
    late_thread();
    late_answer();
    return 0;
}
