/* Stream-ordered memory pools. What a pool has reserved is charged; what is used of it is the program's.
 * Freed memory stays reserved until the next synchronisation, then all above the release threshold goes back.
 */
#ifndef PLIMSOLL_EMULATOR_POOL_H
#define PLIMSOLL_EMULATOR_POOL_H

#include "cuda/driver.h"

struct CUmemPoolHandle_st {
    struct object object;
    CUmemoryPool next; /* of all */
    CUdevice device;
    int gpu;
    bool is_default, dying, is_imported;
    unsigned handle_types; /* by which it may be exported */
    uint64_t id;           /* among its process's pools; an imported one has its exporter's */
    uint64_t exporter_ns;  /* of an imported pool: when its exporter claimed its slot */
    size_t used_bytes, used_high_bytes;
    size_t reserved_bytes, reserved_high_bytes;
    size_t most_bytes; /* 0 = as much as the card has */
    uint64_t threshold_bytes;
    int reuse[3]; /* CU_MEMPOOL_ATTR_REUSE_*: kept, without effect */
};

CUmemoryPool pool_new(CUdevice device);
/* Neither stale nor destroyed. */
bool pool_is(CUmemoryPool pool);
/* An allocation of `size` bytes went back to its pool. */
void pool_returned(CUmemoryPool pool, size_t size);
/* Takes from a pool; 0 = the pool cannot grow. */
uint64_t pool_take(CUmemoryPool pool, CUcontext context, size_t size);
CUmemoryPool pool_current(CUdevice device);
/* After a synchronisation: gives back what pools hold beyond their thresholds. */
void pool_trim_all(void);

#endif
