/* The charge of a pool: the larger of what lives in the pool and what the driver keeps reserved for it. */
#ifndef PLIMSOLL_RESERVED_H
#define PLIMSOLL_RESERVED_H

#include "state.h"

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

#endif
