/* What a pool is charged: the larger of what lives in it and what the driver keeps reserved for it. */
#ifndef PLIMSOLL_RESERVED_H
#define PLIMSOLL_RESERVED_H

#include "state.h"

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

/* Has the driver give back what nothing lives in. */
void plimsoll_pool_trim(struct plimsoll_pool *pool);

/* `bytes` in whole units of `to`; UINT64_MAX where there is no such number. */
uint64_t plimsoll_rounded(uint64_t bytes, uint64_t to);

#endif
