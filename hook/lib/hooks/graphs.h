/* Memory that graphs allocate: charged when a graph is uploaded or launched, which is when the driver maps
 * it. */
#ifndef PLIMSOLL_GRAPHS_H
#define PLIMSOLL_GRAPHS_H

#include "driver/cuda_api.h"

/* Some graph of this process may hold allocation nodes from now on: until then no graph is looked at. */
void plimsoll_graphs_allocate(void);

#endif
