/* Stream-ordered memory pools. The book charges the bytes that a pool has reserved, used or not. Freed
 * memory stays reserved until the next synchronisation, when the pool gives back all bytes above its
 * release threshold. */
#ifndef PLIMSOLL_EMULATOR_POOL_H
#define PLIMSOLL_EMULATOR_POOL_H

#include "cuda/driver.h"

struct CUmemPoolHandle_st {
    struct object object;
    CUmemoryPool next; /* of all */
    CUdevice device;
    int gpu;
    bool is_default, dying, is_imported;
    unsigned handle_types; /* handle types for export */
    uint64_t id;           /* number of the pool in its process; an imported pool has its exporter's number */
    uint64_t exporter_ns;  /* for an imported pool: claim time of the exporter's slot */
    size_t used_bytes, used_high_bytes;
    size_t reserved_bytes, reserved_high_bytes;
    size_t most_bytes; /* limit of the pool; 0 = the card's memory */
    uint64_t threshold_bytes;
    int reuse[3]; /* CU_MEMPOOL_ATTR_REUSE_*: kept, without effect */
};

CUmemoryPool pool_new(CUdevice device);
/* True if the handle is a pool that is not destroyed. */
bool pool_is(CUmemoryPool pool);
/* Gives an allocation of `size` bytes back to its pool. */
void pool_returned(CUmemoryPool pool, size_t size);
/* Allocates from a pool; 0 if the pool cannot grow. */
uint64_t pool_take(CUmemoryPool pool, CUcontext context, size_t size);
CUmemoryPool pool_current(CUdevice device);
/* Gives back the bytes that pools hold beyond their thresholds. Called after a synchronisation. */
void pool_trim_all(void);

#endif
