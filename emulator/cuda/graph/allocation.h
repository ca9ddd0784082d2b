/* What a graph allocates, as an address that several nodes share. */
#ifndef PLIMSOLL_EMULATOR_GRAPH_ALLOCATION_H
#define PLIMSOLL_EMULATOR_GRAPH_ALLOCATION_H

#include "cuda/driver.h"

struct graph_holding;

/* One allocation, shared by its node and the copies of that in executable graphs. */
struct graph_allocation {
    uint64_t base;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUmemAccessDesc access[NODE_MAX_GPUS]; /* where params.accessDescs leads */
    unsigned uses;                         /* by nodes, and one while live */
    struct graph_holding *holder;          /* whose launch made it live; NULL = not live */
};

/* Reserves an address. INVALID_VALUE for anything but pinned memory of a device. */
CUresult graph_memory_new(const CUDA_MEM_ALLOC_NODE_PARAMS *params, struct graph_allocation **allocation);
/* The allocation of a graph at this very address, live or not; NULL = none. */
struct graph_allocation *graph_memory_at(uint64_t address);
void graph_memory_use(struct graph_allocation *allocation);
/* With the last use the address goes. */
void graph_memory_drop(struct graph_allocation *allocation);

#endif
