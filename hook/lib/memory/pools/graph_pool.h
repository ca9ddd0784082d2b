/* The driver's pool for graphs on a GPU of `limits`. */
#ifndef PLIMSOLL_GRAPH_POOL_H
#define PLIMSOLL_GRAPH_POOL_H

#include "state.h"

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

#endif
