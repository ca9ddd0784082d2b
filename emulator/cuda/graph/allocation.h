/* Memory allocated by graphs: an address that several nodes share. */
#ifndef PLIMSOLL_EMULATOR_GRAPH_ALLOCATION_H
#define PLIMSOLL_EMULATOR_GRAPH_ALLOCATION_H

#include "cuda/driver.h"

struct graph_holding;

/* An allocation that is shared by its node and that node's copies in executable graphs. */
struct graph_allocation {
    uint64_t base;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUmemAccessDesc access[NODE_MAX_GPUS]; /* target of params.accessDescs */
    unsigned uses;                         /* number of nodes that use it, plus one while live */
    struct graph_holding *holder;          /* the graph whose launch made it live; NULL = not live */
};

/* Reserves an address. INVALID_VALUE for anything but pinned memory of a device. */
CUresult graph_memory_new(const CUDA_MEM_ALLOC_NODE_PARAMS *params, struct graph_allocation **allocation);
/* The graph allocation that begins at this address, live or not; NULL = none. */
struct graph_allocation *graph_memory_at(uint64_t address);
void graph_memory_use(struct graph_allocation *allocation);
/* Ends a use. The last one frees the address. */
void graph_memory_drop(struct graph_allocation *allocation);

#endif
