/* The driver's pool for graphs on a GPU. */
#ifndef PLIMSOLL_GRAPH_POOL_H
#define PLIMSOLL_GRAPH_POOL_H

#include "state.h"

/* The driver's pool for graphs on a GPU of `limits`. An executable graph that needs `bytes` there came, or
 * went. */
void plimsoll_graph_pool_add(int gpu, uint64_t bytes);

void plimsoll_graph_pool_remove(int gpu, uint64_t bytes);

/* After it was handed over: makes the charge what the driver reserved. */
void plimsoll_graph_pool_leave(int gpu);

/* After a trim, or the end of a context. */
void plimsoll_graph_pool_look(int gpu);

/* The record of a GPU's graph pool, made where there is none; NULL when all records are taken. */
struct plimsoll_pool *plimsoll_graph_pool_of(int gpu);

/* By how much a graph that needs `bytes` can make the pool pass its charge. */
uint64_t plimsoll_graph_pool_growth(struct plimsoll_pool *pool, uint64_t bytes);

#endif
