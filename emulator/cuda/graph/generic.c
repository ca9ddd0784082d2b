/* cuGraphAddNode: one call for all types of node. It calls the type's own function. */
#include "cuda/graph/graph.h"

static CUresult add_allocation(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUgraphNodeParams *params) {
    CUDA_MEM_ALLOC_NODE_PARAMS old = {.poolProps = params->alloc.poolProps,
                                      .bytesize = params->alloc.bytesize};
    CUresult result = cuGraphAddMemAllocNode(node, graph, dependencies, count, &old);
    if (result == CUDA_SUCCESS)
        params->alloc.dptr = old.dptr;
    return result;
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                        CUgraphNodeParams *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS kernel = graph_kernel_of_v3(&params->kernel);
        return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphAddMemcpyNode(node, graph, dependencies, count, &params->memcpy.copyParams,
                                    params->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS fill = graph_fill_of_v2(&params->memset);
        return cuGraphAddMemsetNode(node, graph, dependencies, count, &fill, params->memset.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        CUDA_HOST_NODE_PARAMS host = {.fn = params->host.fn, .userData = params->host.userData};
        return cuGraphAddHostNode(node, graph, dependencies, count, &host);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return cuGraphAddChildGraphNode(node, graph, dependencies, count, params->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return cuGraphAddEmptyNode(node, graph, dependencies, count);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphAddEventWaitNode(node, graph, dependencies, count, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphAddEventRecordNode(node, graph, dependencies, count, params->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return add_allocation(node, graph, dependencies, count, params);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return cuGraphAddMemFreeNode(node, graph, dependencies, count, params->free.dptr);
    default: /* external semaphores, batched memory operations and conditions are not emulated */
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params) {
    (void)edges;
    return cuGraphAddNode(node, graph, dependencies, count, params);
}
