/* Which record a pool of the driver has, and which pool is the current one of a GPU. */
#ifndef PLIMSOLL_HANDLES_H
#define PLIMSOLL_HANDLES_H

#include "state.h"

void plimsoll_pool_made(struct plimsoll_pool *pool, CUmemoryPool handle);

/* The record of a pool that the program names; of one of the driver's own, from now on. NULL when there is no
 * record left: then its memory is not told apart from other memory of its GPU. */
struct plimsoll_pool *plimsoll_pool_of(CUmemoryPool handle);

/* Of the pool that cuMemAllocAsync takes from on this GPU. */
struct plimsoll_pool *plimsoll_pool_current(int gpu);

/* After a program changed some GPU's current pool. */
void plimsoll_pools_changed(void);

#endif
