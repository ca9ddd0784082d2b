/* Graphs: nodes with dependencies. An executable graph has its nodes in an order that respects the
 * dependencies. A launch submits them to its stream one after the other. */
#ifndef PLIMSOLL_EMULATOR_GRAPH_H
#define PLIMSOLL_EMULATOR_GRAPH_H

#include "cuda/stream/work.h"

struct CUgraphNode_st {
    struct object object;
    CUgraphNode next; /* in its graph, in order of creation */
    CUgraph graph;
    CUgraphNode origin; /* the node's original, for a node of a clone or an executable graph */
    CUgraphNodeType type;
    unsigned order;   /* used by the topological sort */
    struct work work; /* work of a node that has any */
    CUgraphNode *dependencies;
    size_t dependency_count;
    CUgraph child;                       /* owned */
    CUdeviceptr address;                 /* address of memory nodes */
    struct graph_allocation *allocation; /* allocation of a node that allocates; allocation.h */
};

struct CUgraph_st {
    struct object object;
    CUgraphNode first, last;
    size_t node_count;
    CUgraph source; /* the graph of which this is a clone */
    unsigned long long id, source_id;
    unsigned instances; /* number of living executable graphs made of it */
    bool is_child;
};

struct CUgraphExec_st {
    struct object object;
    CUgraph graph; /* a private copy, its nodes sorted */
    unsigned long long flags;
};

CUgraph graph_new(void);
/* Adds a node of `type` that depends on the given nodes; NULL without host memory. */
CUgraphNode graph_add(CUgraph graph, CUgraphNodeType type, const CUgraphNode *dependencies, size_t count);
void graph_free(CUgraph graph);
/* Takes a node and its edges out of its graph. */
void graph_remove(CUgraphNode node);
/* Copies a graph with its nodes in the same order; NULL without host memory. */
CUgraph graph_clone(CUgraph graph);
/* True if all these nodes belong to this graph; no node may be NULL. */
bool graph_owns_all(CUgraph graph, const CUgraphNode *nodes, size_t count);
bool graph_depend(CUgraphNode node, const CUgraphNode *dependencies, size_t count);
/* The node of a copy that stands for `origin`; NULL = none. */
CUgraphNode graph_find_copy(CUgraph copy, CUgraphNode origin);
/* True if a graph has nodes that allocate or free. */
bool graph_memory_in(CUgraph graph);
/* True if a graph has a node that frees this address. */
bool graph_memory_frees(CUgraph graph, uint64_t address);
/* Convert parameters from the forms of newer calls. */
CUDA_KERNEL_NODE_PARAMS graph_kernel_of_v3(const CUDA_KERNEL_NODE_PARAMS_v3 *from);
CUDA_MEMSET_NODE_PARAMS graph_fill_of_v2(const CUDA_MEMSET_NODE_PARAMS_v2 *from);

#endif
