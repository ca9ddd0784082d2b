/* Memory that the driver hands out from what it has reserved: stream-ordered pools, and its pool for graphs.
 *
 * A program frees into a pool, not to the card. So what counts of a pool is the larger of what lives in it
 * and what the driver keeps reserved for it, and that shrinks when the driver gives back: at synchronisation
 * points down to the release threshold, and when it is trimmed.
 */
#ifndef PLIMSOLL_POOLS_H
#define PLIMSOLL_POOLS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_api.h"
#include "memory/holdings.h"
#include "pages.h"

struct plimsoll_charge;

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

/* A record for a pool on a GPU; NULL when all are taken. `handle` 0 is filled in by plimsoll_pool_made. */
struct plimsoll_pool *plimsoll_pool_take(int gpu, uint64_t handle);
void plimsoll_pool_made(struct plimsoll_pool *pool, CUmemoryPool handle);
void plimsoll_pool_drop(struct plimsoll_pool *pool);

/* The record of a pool that the program names; of one of the driver's own, from now on. NULL when there is no
 * record left: then its memory is not told apart from other memory of its GPU. */
struct plimsoll_pool *plimsoll_pool_of(CUmemoryPool handle);
/* Of the pool that cuMemAllocAsync takes from on this GPU. */
struct plimsoll_pool *plimsoll_pool_current(int gpu);
/* After a program changed some GPU's current pool. */
void plimsoll_pools_changed(void);

/* Reserves what an allocation may make the pool grow by. As plimsoll_reserve otherwise. */
CUresult plimsoll_pool_reserve(struct plimsoll_charge *charge, struct plimsoll_pool *pool, uint64_t bytes);
/* After the driver's call: makes the charge what the driver really reserved. Where that passes the line, the
 * memory goes back, in the order of `stream`, and the result is CUDA_ERROR_OUT_OF_MEMORY. `with` is the
 * stream's context. */
CUresult plimsoll_pool_commit(struct plimsoll_charge *charge, struct plimsoll_pool *pool, CUresult result,
                              CUdeviceptr pointer, CUstream stream, uint64_t with);
/* Off what lives in a pool. */
void plimsoll_pool_returned(const struct plimsoll_holding *holding);
/* The driver's name for a pool, which is not destroyed until unpinned; NULL if it is or is about to be: a
 * call that the program did not make must not reach the driver while another thread destroys its pool. */
CUmemoryPool plimsoll_pool_pin(struct plimsoll_pool *pool);
void plimsoll_pool_unpin(struct plimsoll_pool *pool);
/* Before cuMemPoolDestroy: returns when no other thread asks the driver about the pool any more. */
void plimsoll_pool_close(struct plimsoll_pool *pool);
/* After it: if the pool is destroyed, only what lives in it is left. */
void plimsoll_pool_closed(struct plimsoll_pool *pool, bool is_destroyed);

/* Asks the driver what it keeps reserved, and gives back what it no longer does. */
void plimsoll_pool_look(struct plimsoll_pool *pool);
/* The same for all pools that may have shrunk: after a synchronisation, or the end of a context, which takes
 * what was allocated in its streams; pools themselves belong to the device and outlive it. */
void plimsoll_pools_look(void);
/* Before `bytes` are refused on a GPU: takes back what pools hold there that nothing lives in. */
void plimsoll_pools_make_room(int gpu, uint64_t bytes);
/* The driver's pool for graphs on a GPU of `limits`. An executable graph that needs `bytes` there came, or
 * went. */
void plimsoll_graph_pool_add(int gpu, uint64_t bytes);
void plimsoll_graph_pool_remove(int gpu, uint64_t bytes);
/* Before a graph runs that needs `bytes`: charges what the pool may grow by for it, waiting where that is
 * within the line but past the grant. False if the line forbids. */
bool plimsoll_graph_pool_enter(int gpu, uint64_t bytes, const char *function);
/* After it was handed over: makes the charge what the driver reserved. */
void plimsoll_graph_pool_leave(int gpu);
/* After a trim, or the end of a context. */
void plimsoll_graph_pool_look(int gpu);

/* In a forked child. */
void plimsoll_pools_reset(void);

#endif
