/* The records of pools, and which of them are taken. */
#ifndef PLIMSOLL_RECORDS_H
#define PLIMSOLL_RECORDS_H

#include "state.h"

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

#endif
