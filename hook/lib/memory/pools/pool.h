/* What is known of each pool from which the driver hands out memory. */
#ifndef PLIMSOLL_POOL_H
#define PLIMSOLL_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_api.h"
#include "pages.h"

/* A program has one or two; the driver's own are one per GPU. */
#define PLIMSOLL_POOLS 1024

struct plimsoll_pool {
    pthread_mutex_t lock;   /* guards the fields below; never held across a driver call */
    uint64_t handle;        /* the driver's; 0: not made yet, destroyed, or of a graph pool */
    uint64_t live_bytes;    /* of allocations begun and not yet freed */
    uint64_t charged_bytes; /* in this process's word: at least what lives, or what is reserved */
    uint64_t demand_bytes;  /* of a graph pool: what all executable graphs can make it hold */
    uint64_t orphan_bytes;  /* of a graph pool: what graphs destroyed since may still hold */
    uint64_t started;       /* allocations begun so far; goes on from one use of the record to the next */
    unsigned in_flight;     /* allocations begun whose outcome is not settled yet */
    unsigned pins;          /* threads that ask the driver about it right now */
    bool is_closing;        /* about to be destroyed: no more questions */
    bool is_destroyed;      /* only what lives in it keeps the record */
    int gpu;                /* index in `limits`, or negative: charged nowhere. Fixed while in use */
    CUdevice device;        /* of a graph pool. Likewise */
    bool is_graphs;         /* the driver's pool for graphs on a GPU. Likewise */
    bool is_taken;          /* written under pools.lock too, so either will do to read it */
    bool is_slack;          /* the driver may give some of it back at the next synchronisation */
};

struct plimsoll_pools {
    pthread_mutex_t lock; /* guards which records are taken */
    pthread_mutex_t
        learn_lock; /* guards no field: one thread at a time learns of a pool of the driver's own */
    unsigned count; /* atomic; records ever taken, they are used from the first on */
    int has_slack;  /* atomic; some record may have slack */
    /* atomic, by GPU: the record of the current pool plus 1, in the low 16 bits; above them a count of the
     * changes, so that an answer of the driver that a change overtook is not kept */
    uint64_t current[PLIMSOLL_MAX_GPUS];
    unsigned graphs[PLIMSOLL_MAX_GPUS]; /* atomic; the record of a GPU's graph pool plus 1 */
    struct plimsoll_pool records[PLIMSOLL_POOLS];
};

#endif
