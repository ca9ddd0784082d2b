/* Graphs: nodes with dependencies, and their executable form: the nodes in an order that respects them, which
 * a launch hands to its stream one after the other. */
#ifndef PLIMSOLL_EMULATOR_GRAPH_H
#define PLIMSOLL_EMULATOR_GRAPH_H

#include "cuda/stream/work.h"

struct CUgraphNode_st {
    struct object object;
    CUgraphNode next; /* in its graph, in order of creation */
    CUgraph graph;
    CUgraphNode origin; /* of a node in a clone or an executable graph */
    CUgraphNodeType type;
    bool enabled;
    unsigned order;   /* scratch of the topological sort */
    struct work work; /* of types that do anything */
    CUgraphNode *dependencies;
    size_t dependency_count;
    CUDA_KERNEL_NODE_PARAMS kernel;
    void *parameters[MODULE_PARAMETERS]; /* of a kernel that has any: into `work`; kernel.kernelParams */
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUgraph child;                       /* owned */
    CUdeviceptr address;                 /* of memory nodes */
    struct graph_allocation *allocation; /* of a node that allocates; allocation.h */
};

struct CUgraph_st {
    struct object object;
    CUgraphNode first, last;
    size_t node_count;
    CUgraph source; /* of a clone */
    unsigned long long id, source_id;
    unsigned instances; /* executable graphs made of it that live */
    bool is_child;
};

struct CUgraphExec_st {
    struct object object;
    CUgraph graph; /* a private copy, its nodes sorted */
    unsigned long long flags;
};

CUgraph graph_new(void);
/* A node of `type` that depends on the given ones; NULL without host memory. */
CUgraphNode graph_add(CUgraph graph, CUgraphNodeType type, const CUgraphNode *dependencies, size_t count);
/* Sets what a node does; copies the parameters that `work` points to. */
CUresult graph_set_work(CUgraphNode node, const struct work *work);
void graph_free(CUgraph graph);
/* Takes a node and its edges out of its graph. */
void graph_remove(CUgraphNode node);
/* A copy with the same nodes in the same order; NULL without host memory. */
CUgraph graph_clone(CUgraph graph);
/* Are these nodes, without NULLs, all of this graph? */
bool graph_owns_all(CUgraph graph, const CUgraphNode *nodes, size_t count);
bool graph_depend(CUgraphNode node, const CUgraphNode *dependencies, size_t count);
/* The node of a copy that stands for `origin`; NULL = none. */
CUgraphNode graph_find_copy(CUgraph copy, CUgraphNode origin);
/* The same in an executable graph. */
CUgraphNode graph_node_in(CUgraphExec exec, CUgraphNode node);
/* Has a graph nodes that allocate or free? */
bool graph_memory_in(CUgraph graph);
/* Does a graph free this address already? */
bool graph_memory_frees(CUgraph graph, uint64_t address);
/* Parameters as nodes keep them, from the forms of older and newer calls. */
CUDA_KERNEL_NODE_PARAMS graph_kernel_of_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *from);
CUDA_KERNEL_NODE_PARAMS graph_kernel_of_v3(const CUDA_KERNEL_NODE_PARAMS_v3 *from);
CUDA_MEMSET_NODE_PARAMS graph_fill_of_v2(const CUDA_MEMSET_NODE_PARAMS_v2 *from);

#endif
