/* Pools: the driver hands out memory from what it has reserved, in stream-ordered pools and in its pool for
 * graphs.
 *
 * A program frees into a pool, not to the card. So a pool counts as the larger of what lives in it and what
 * the driver keeps reserved for it. The reserved memory shrinks at synchronisation points, down to the
 * release threshold, and when the pool is trimmed.
 */
#ifndef PLIMSOLL_POOL_H
#define PLIMSOLL_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_api.h"
#include "pages.h"

/* A program has one or two pools; the driver has one of its own per GPU. */
#define PLIMSOLL_POOLS 1024

struct plimsoll_pool {
    pthread_mutex_t lock;   /* guards the fields below; never held across a driver call */
    uint64_t handle;        /* the driver's handle; 0: not made yet, destroyed, or a graph pool */
    uint64_t live_bytes;    /* allocations begun and not yet freed */
    uint64_t charged_bytes; /* in this process's word: at least the live or the reserved bytes */
    uint64_t demand_bytes;  /* graph pool: the most that all executable graphs can make it hold */
    uint64_t orphan_bytes;  /* graph pool: the most that graphs destroyed since may still hold */
    uint64_t started;       /* allocations begun so far; continues from one use of the record to the next */
    unsigned in_flight;     /* allocations begun whose outcome is not settled yet */
    unsigned pins;          /* threads that query the driver about the pool now */
    bool is_closing;        /* about to be destroyed: no more queries */
    bool is_destroyed;      /* only what lives in the pool keeps the record */
    int gpu;                /* index in `limits`, or negative: charged nowhere. Fixed while in use */
    CUdevice device;        /* graph pool: its device. Fixed while in use */
    bool is_graphs;         /* the driver's pool for graphs on a GPU. Fixed while in use */
    bool is_taken;          /* written under pools.lock too, so either lock allows reading */
    bool is_slack;          /* the driver may give some of the pool back at the next synchronisation */
};

struct plimsoll_pools {
    pthread_mutex_t lock;       /* guards which records are taken */
    pthread_mutex_t learn_lock; /* guards no field: serialises making records of the driver's pools */
    unsigned count;             /* atomic; records ever taken, they are used from the first on */
    int has_slack;              /* atomic; some record may have slack */
    /* atomic, by GPU: the record of the current pool plus 1, in the low 16 bits. Above them is a count of the
     * changes, by which an answer of the driver that a change overtook is dropped. */
    uint64_t current[PLIMSOLL_MAX_GPUS];
    unsigned graphs[PLIMSOLL_MAX_GPUS]; /* atomic; the record of a GPU's graph pool plus 1 */
    struct plimsoll_pool records[PLIMSOLL_POOLS];
};

#endif
