/* What the files about pools share among themselves. */
#ifndef PLIMSOLL_POOLS_INSIDE_H
#define PLIMSOLL_POOLS_INSIDE_H

#include "memory/charge.h"
#include "memory/pools/pools.h"
#include "state.h"

static inline struct plimsoll_pools *plimsoll_pools(void) {
    return &plimsoll.pools;
}

static inline uint64_t plimsoll_pool_index(const struct plimsoll_pool *pool) {
    return (uint64_t)(pool - plimsoll_pools()->records);
}

/* What the driver says that a pool has reserved; 0 where it does not say. */
uint64_t plimsoll_pool_reserved(struct plimsoll_pool *pool);
/* How many allocations have begun: to be asked before plimsoll_pool_reserved. */
uint64_t plimsoll_pool_started(struct plimsoll_pool *pool);
/* Lowers the charge where the answer, asked for when `started` allocations had begun, cannot have been
 * overtaken. Returns by how much the charge is too low. */
uint64_t plimsoll_pool_settle(struct plimsoll_pool *pool, uint64_t reserved_bytes, uint64_t started);
/* From the one to the other nobody lowers the charge. */
void plimsoll_pool_enter(struct plimsoll_pool *pool);
void plimsoll_pool_leave(struct plimsoll_pool *pool, uint64_t unused_bytes);
/* Raises the charge, waiting where that is within the line but past the grant; outside the pool, so that
 * others can go on giving back while this thread waits. */
bool plimsoll_pool_charge(struct plimsoll_pool *pool, uint64_t bytes, const struct plimsoll_charge *charge);

#endif
