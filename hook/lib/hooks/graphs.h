/* The memory that graphs allocate. It is charged when a graph is uploaded or launched, which is when the
 * driver maps it. */
#ifndef PLIMSOLL_GRAPHS_H
#define PLIMSOLL_GRAPHS_H

#include "driver/cuda_api.h"

/* Some graph of this process may hold allocation nodes from now on. Until then no graph is examined. */
void plimsoll_graphs_allocate(void);

#endif
