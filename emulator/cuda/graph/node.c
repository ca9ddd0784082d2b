/* Queries and changes of the nodes of graphs and of executable graphs. */
#include "cuda/context/context.h"
#include "cuda/graph/graph.h"
#include "cuda/memory/copy.h"
#include "cuda/stream/launch.h"

/* Enters and checks that a node is of a type. */
static CUresult enter(CUgraphNode node, CUgraphNodeType type, const void *params) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    bool good = object_is(node, OBJECT_NODE) && node->type == type && params;
    return good ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(node, OBJECT_NODE) || !type)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *type = node->type;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params) {
    CUresult entered = enter(node, CU_GRAPH_NODE_TYPE_KERNEL, params);
    if (entered)
        return entered;
    *params = node->kernel;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params) {
    CUDA_KERNEL_NODE_PARAMS wide;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuGraphKernelNodeGetParams_v2(node, &wide);
    if (result == CUDA_SUCCESS)
        *params = (CUDA_KERNEL_NODE_PARAMS_v1){.func = wide.func,
                                               .gridDimX = wide.gridDimX,
                                               .gridDimY = wide.gridDimY,
                                               .gridDimZ = wide.gridDimZ,
                                               .blockDimX = wide.blockDimX,
                                               .blockDimY = wide.blockDimY,
                                               .blockDimZ = wide.blockDimZ,
                                               .sharedMemBytes = wide.sharedMemBytes,
                                               .kernelParams = wide.kernelParams,
                                               .extra = wide.extra};
    return result;
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *params) {
    CUresult entered = enter(node, CU_GRAPH_NODE_TYPE_MEMCPY, params);
    if (entered)
        return entered;
    *params = node->copy;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params) {
    CUresult entered = enter(node, CU_GRAPH_NODE_TYPE_MEMSET, params);
    if (entered)
        return entered;
    *params = node->fill;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *params) {
    CUresult entered = enter(node, CU_GRAPH_NODE_TYPE_HOST, params);
    if (entered)
        return entered;
    params->fn = node->work.host;
    params->userData = node->work.host_data;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph) {
    CUresult entered = enter(node, CU_GRAPH_NODE_TYPE_GRAPH, graph);
    if (entered)
        return entered;
    *graph = node->child;
    return driver_leave(CUDA_SUCCESS);
}

CUgraphNode graph_node_in(CUgraphExec exec, CUgraphNode node) {
    return object_is(exec, OBJECT_GRAPH_EXEC) ? graph_find_copy(exec->graph, node) : NULL;
}

static CUresult set_kernel(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params) {
    struct work work;
    if (!node || node->type != CU_GRAPH_NODE_TYPE_KERNEL || !params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = launch_work(context_current(), params, &work);
    return result ? result : graph_set_work(node, &work);
}

static CUresult set_copy(CUgraphNode node, const CUDA_MEMCPY3D *params) {
    struct work work;
    if (!node || node->type != CU_GRAPH_NODE_TYPE_MEMCPY || !params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = copy_box(params, &work);
    return result ? result : graph_set_work(node, &work);
}

static CUresult set_fill(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params) {
    struct work work;
    if (!node || node->type != CU_GRAPH_NODE_TYPE_MEMSET || !params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = copy_fill(params, &work);
    return result ? result : graph_set_work(node, &work);
}

static CUresult set_host(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params) {
    if (!node || node->type != CU_GRAPH_NODE_TYPE_HOST || !params || !params->fn)
        return CUDA_ERROR_INVALID_VALUE;
    node->work.host = params->fn;
    node->work.host_data = params->userData;
    return CUDA_SUCCESS;
}

static CUgraphNode known(CUgraphNode node) {
    return object_is(node, OBJECT_NODE) ? node : NULL;
}

/* The functions below change a node of a graph, or the same node of an executable graph. */
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    return entered ? entered : driver_leave(set_kernel(known(node), params));
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *params) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    return entered ? entered : driver_leave(set_kernel(graph_node_in(exec, node), params));
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params) {
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(set_copy(known(node), params));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params,
                                        CUcontext context) {
    (void)context;
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(set_copy(graph_node_in(exec, node), params));
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params) {
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(set_fill(known(node), params));
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context) {
    (void)context;
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(set_fill(graph_node_in(exec, node), params));
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params) {
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(set_host(known(node), params));
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS *params) {
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(set_host(graph_node_in(exec, node), params));
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS wide = graph_kernel_of_v1(params);
    return cuGraphKernelNodeSetParams_v2(node, &wide);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS wide = graph_kernel_of_v1(params);
    return cuGraphExecKernelNodeSetParams_v2(exec, node, &wide);
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    CUgraphNode copy = graph_node_in(exec, node);
    if (!copy)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    copy->enabled = enabled != 0;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    CUgraphNode copy = graph_node_in(exec, node);
    if (!copy || !enabled)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *enabled = copy->enabled;
    return driver_leave(CUDA_SUCCESS);
}
