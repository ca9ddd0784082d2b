/* The memory that the allocation nodes of a graph need. */
#ifndef PLIMSOLL_GRAPH_NEEDS_H
#define PLIMSOLL_GRAPH_NEEDS_H

#include "state.h"

struct plimsoll_range {
    uint64_t start, end;
    int gpu;
};

struct plimsoll_ranges {
    struct plimsoll_range *rows; /* mmap'd */
    size_t count, room;
    bool is_short; /* no memory for all rows */
};

/* Adds the allocations of a graph and of the graphs in it. */
void plimsoll_graph_needs_add(struct plimsoll_ranges *ranges, CUgraph graph);

/* The bytes that the allocations need on one GPU of `limits`. */
uint64_t plimsoll_graph_needs_on(const struct plimsoll_ranges *ranges, int gpu);

void plimsoll_graph_needs_free(struct plimsoll_ranges *ranges);

#endif
