/* The records of pools, their charge, and allocations from them. */
#ifndef PLIMSOLL_POOLS_H
#define PLIMSOLL_POOLS_H

#include "state.h"

struct plimsoll_charge;

/* --- pools.c: the records of pools, and which of them are taken -----------------------------------------
 */

static inline struct plimsoll_pools *plimsoll_pools(void) {
    return &plimsoll.pools;
}

static inline uint64_t plimsoll_pool_index(const struct plimsoll_pool *pool) {
    return (uint64_t)(pool - plimsoll_pools()->records);
}

/* A record for a pool on a GPU; NULL when all are taken. plimsoll_pool_made fills in the driver's handle. */
struct plimsoll_pool *plimsoll_pool_take(int gpu);

void plimsoll_pool_drop(struct plimsoll_pool *pool);

/* In a forked child: forgets every pool. */
void plimsoll_pools_reset(void);

/* --- pools.c: the charge of a pool, the larger of what lives in it and what the driver keeps reserved for it
 * ---
 */

/* Takes a freed holding off what lives in its pool. */
void plimsoll_pool_returned(const struct plimsoll_holding *holding);

/* The driver's handle of a pool, which is not destroyed until plimsoll_pool_unpin. NULL if the pool is
 * destroyed or about to be. A call that the program did not make must not reach the driver while another
 * thread destroys the pool. */
CUmemoryPool plimsoll_pool_pin(struct plimsoll_pool *pool);

void plimsoll_pool_unpin(struct plimsoll_pool *pool);

/* Before cuMemPoolDestroy: returns when no other thread queries the driver about the pool any more. */
void plimsoll_pool_close(struct plimsoll_pool *pool);

/* After cuMemPoolDestroy: if the pool is destroyed, only what lives in it is left. */
void plimsoll_pool_closed(struct plimsoll_pool *pool, bool is_destroyed);

/* Queries what the driver keeps reserved, and gives back what it no longer keeps. */
void plimsoll_pool_update(struct plimsoll_pool *pool);

/* The same for all pools that may have shrunk. Call this after a synchronisation, and after the end of a
 * context, which frees what was allocated in its streams. Pools themselves belong to the device and outlive
 * the context. */
void plimsoll_pools_update(void);

/* Before `bytes` are refused on a GPU: takes back what pools there keep without using it. */
void plimsoll_pools_make_room(int gpu, uint64_t bytes);

/* The bytes that the driver has reserved for a pool; 0 where the driver does not say. */
uint64_t plimsoll_pool_reserved(struct plimsoll_pool *pool);

/* The number of allocations begun. Read it before plimsoll_pool_reserved. */
uint64_t plimsoll_pool_started(struct plimsoll_pool *pool);

/* Lowers the charge to the driver's answer `reserved_bytes`, unless an allocation may have overtaken that
 * answer. `started` is the number of allocations begun when the driver was asked. Returns the bytes by which
 * the charge is too low. */
uint64_t plimsoll_pool_settle(struct plimsoll_pool *pool, uint64_t reserved_bytes, uint64_t started);

/* Between these two calls no thread lowers the charge. */
void plimsoll_pool_enter(struct plimsoll_pool *pool);

void plimsoll_pool_leave(struct plimsoll_pool *pool, uint64_t unused_bytes);

/* Makes the driver give back what nothing lives in. */
void plimsoll_pool_trim(struct plimsoll_pool *pool);

/* --- handles.c: the record of each pool of the driver, and the current pool of each GPU -----------------
 */

void plimsoll_pool_made(struct plimsoll_pool *pool, CUmemoryPool handle);

/* The record of a pool that the program names. The driver's own pools get one here. NULL when no record is
 * left: then the pool's memory counts like other memory of its GPU. */
struct plimsoll_pool *plimsoll_pool_of(CUmemoryPool handle);

/* The record of the pool from which cuMemAllocAsync takes memory on this GPU. */
struct plimsoll_pool *plimsoll_pool_current(int gpu);

/* After a program changed the current pool of some GPU. */
void plimsoll_pools_changed(void);

/* --- allocations.c: an allocation from a pool, before the driver's call and after it --------------------
 */

/* Reserves the bytes by which an allocation may make the pool grow. Otherwise like plimsoll_reserve. */
CUresult plimsoll_pool_reserve(struct plimsoll_charge *charge, struct plimsoll_pool *pool, uint64_t bytes);

/* After the driver's call: makes the charge what the driver really reserved. If that passes the line, the
 * memory goes back, in the order of `stream`, and the result is CUDA_ERROR_OUT_OF_MEMORY. `with` is the
 * stream's context. */
CUresult plimsoll_pool_commit(struct plimsoll_charge *charge, struct plimsoll_pool *pool, CUresult result,
                              CUdeviceptr pointer, CUstream stream, uint64_t with);

/* Before a launch of a graph that needs `bytes`: charges the bytes by which the graph pool may grow. Waits if
 * these are within the line but past the grant. False if the line forbids them. */
bool plimsoll_graph_pool_enter(int gpu, uint64_t bytes, const char *function);

/* --- graph_pool.c: the driver's pool for graphs on a GPU of `limits` ------------------------------------
 */

/* An executable graph that needs `bytes` on the GPU was made, or destroyed. */
void plimsoll_graph_pool_add(int gpu, uint64_t bytes);

void plimsoll_graph_pool_remove(int gpu, uint64_t bytes);

/* After the graph was handed to the driver: makes the charge what the driver reserved. */
void plimsoll_graph_pool_leave(int gpu);

/* After a trim, or the end of a context: queries the driver, and gives back what it no longer keeps. */
void plimsoll_graph_pool_update(int gpu);

/* The record of a GPU's graph pool, made if there is none; NULL when all records are taken. */
struct plimsoll_pool *plimsoll_graph_pool_of(int gpu);

/* The bytes by which a graph that needs `bytes` can make the pool pass its charge. */
uint64_t plimsoll_graph_pool_growth(struct plimsoll_pool *pool, uint64_t bytes);

/* --- graph_pool.c: the memory that the allocation nodes of a graph need ------------------------------
 */

struct plimsoll_range {
    uint64_t start, end;
    int gpu;
};

struct plimsoll_ranges {
    struct plimsoll_range *rows; /* mmap'd */
    size_t count, room;
    bool is_short; /* no memory for all rows */
};

/* Adds the allocations of a graph and of the graphs in it. */
void plimsoll_graph_needs_add(struct plimsoll_ranges *ranges, CUgraph graph);

/* The bytes that the allocations need on one GPU of `limits`. */
uint64_t plimsoll_graph_needs_on(const struct plimsoll_ranges *ranges, int gpu);

void plimsoll_graph_needs_free(struct plimsoll_ranges *ranges);

/* Some graph of this process may hold allocation nodes from now on. Until then no graph is examined. */
static inline void plimsoll_graphs_allocate(void) {
    __atomic_store_n(&plimsoll.graphs_allocate, 1, __ATOMIC_RELEASE);
}

#endif
