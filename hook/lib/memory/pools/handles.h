/* The record of each pool of the driver, and the current pool of each GPU. */
#ifndef PLIMSOLL_HANDLES_H
#define PLIMSOLL_HANDLES_H

#include "state.h"

void plimsoll_pool_made(struct plimsoll_pool *pool, CUmemoryPool handle);

/* The record of a pool that the program names. The driver's own pools get one here. NULL when no record is
 * left: then the pool's memory counts like other memory of its GPU. */
struct plimsoll_pool *plimsoll_pool_of(CUmemoryPool handle);

/* The record of the pool from which cuMemAllocAsync takes memory on this GPU. */
struct plimsoll_pool *plimsoll_pool_current(int gpu);

/* After a program changed the current pool of some GPU. */
void plimsoll_pools_changed(void);

#endif
