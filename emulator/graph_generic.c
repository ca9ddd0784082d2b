/* cuGraphAddNode: one call for every type of node, leading to that type's own. */
#include "driver.h"

static CUresult add_allocation(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUgraphNodeParams *params) {
    CUDA_MEM_ALLOC_NODE_PARAMS old = {.poolProps = params->alloc.poolProps,
                                      .bytesize = params->alloc.bytesize};
    CUresult result = cuGraphAddMemAllocNode(node, graph, dependencies, count, &old);
    if (result == CUDA_SUCCESS)
        params->alloc.dptr = old.dptr;
    return result;
}

static CUresult add_kernel(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                           const CUDA_KERNEL_NODE_PARAMS_v3 *from) {
    CUDA_KERNEL_NODE_PARAMS params = {.func = from->func,
                                      .gridDimX = from->gridDimX,
                                      .gridDimY = from->gridDimY,
                                      .gridDimZ = from->gridDimZ,
                                      .blockDimX = from->blockDimX,
                                      .blockDimY = from->blockDimY,
                                      .blockDimZ = from->blockDimZ,
                                      .sharedMemBytes = from->sharedMemBytes,
                                      .kernelParams = from->kernelParams,
                                      .extra = from->extra,
                                      .kern = from->kern,
                                      .ctx = from->ctx};
    return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &params);
}

static CUresult add_fill(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                         const CUDA_MEMSET_NODE_PARAMS_v2 *from) {
    CUDA_MEMSET_NODE_PARAMS params = {.dst = from->dst,
                                      .pitch = from->pitch,
                                      .value = from->value,
                                      .elementSize = from->elementSize,
                                      .width = from->width,
                                      .height = from->height};
    return cuGraphAddMemsetNode(node, graph, dependencies, count, &params, from->ctx);
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                        CUgraphNodeParams *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return add_kernel(node, graph, dependencies, count, &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphAddMemcpyNode(node, graph, dependencies, count, &params->memcpy.copyParams,
                                    params->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return add_fill(node, graph, dependencies, count, &params->memset);
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
