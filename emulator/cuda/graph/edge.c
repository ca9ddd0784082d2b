/* The nodes and edges of a graph. */
#include "cuda/graph/graph.h"

static CUresult enter(CUgraph graph) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    return object_is(graph, OBJECT_GRAPH) ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

/* Writes a node if there is room for it, and counts it. */
static void list(CUgraphNode node, CUgraphNode *nodes, size_t room, size_t *count) {
    if (nodes && *count < room)
        nodes[*count] = node;
    (*count)++;
}

/* Ends a listing call. Without an array *count is the number of nodes; with one, the number written. */
static CUresult listed(CUgraphNode *nodes, size_t room, size_t total, size_t *count) {
    for (size_t i = total; nodes && i < room; i++)
        nodes[i] = NULL;
    *count = nodes && total > room ? room : total;
    return driver_leave(CUDA_SUCCESS);
}

static CUresult list_all(CUgraph graph, bool only_roots, CUgraphNode *nodes, size_t *count) {
    size_t total = 0;
    CUresult entered = enter(graph);
    if (entered)
        return entered;
    if (!count)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (CUgraphNode node = graph->first; node; node = node->next)
        if (!only_roots || !node->dependency_count)
            list(node, nodes, *count, &total);
    return listed(nodes, *count, total, count);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    return list_all(graph, false, nodes, count);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    return list_all(graph, true, nodes, count);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
    CUresult entered = enter(graph);
    if (entered)
        return entered;
    if (!graph_owns_all(graph, from, count) || !graph_owns_all(graph, to, count))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        if (!graph_depend(to[i], &from[i], 1))
            return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphDestroyNode(CUgraphNode node) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(node, OBJECT_NODE))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (graph_memory_in(node->graph))
        return driver_leave(CUDA_ERROR_NOT_SUPPORTED);
    graph_remove(node);
    return driver_leave(CUDA_SUCCESS);
}

/* Edges have no data here. All of them mean plain order, which zeros express. */
CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges,
                            size_t *count) {
    size_t total = 0, same = 0;
    CUresult entered = enter(graph);
    if (entered)
        return entered;
    if (!count || !from != !to)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (CUgraphNode node = graph->first; node; node = node->next) {
        for (size_t i = 0; i < node->dependency_count; i++) {
            if (from && edges && total < *count)
                edges[total] = (CUgraphEdgeData){0};
            list(node->dependencies[i], from, *count, &total);
            list(node, to, *count, &same);
        }
    }
    return listed(from, *count, total, count);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edges, size_t count) {
    (void)edges;
    return cuGraphAddDependencies(graph, from, to, count);
}
