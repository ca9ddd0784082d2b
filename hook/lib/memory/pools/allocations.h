/* An allocation from a pool: the pool's charge before the driver's call, and after it. */
#ifndef PLIMSOLL_ALLOCATIONS_H
#define PLIMSOLL_ALLOCATIONS_H

#include "memory/charge.h"

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

#endif
