/* Queries and changes of nodes. Changes work in a graph, and in an executable graph between its launches. */
#include "cuda/context/context.h"
#include "cuda/graph/graph.h"
#include "cuda/memory/copy/copy.h"
#include "cuda/stream/event/event.h"
#include "cuda/stream/launch.h"

/* Enters and checks that a node is of a type. */
static CUresult enter(CUgraphNode node, CUgraphNodeType type, const void *result) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    bool good = object_is(node, OBJECT_NODE) && node->type == type && result;
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

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph) {
    CUresult entered = enter(node, CU_GRAPH_NODE_TYPE_GRAPH, graph);
    if (entered)
        return entered;
    *graph = node->child;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event) {
    CUresult entered = enter(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
    if (entered)
        return entered;
    *event = node->work.event;
    return driver_leave(CUDA_SUCCESS);
}

static CUresult set_host(CUgraphNode node, CUhostFn host, void *data) {
    if (!host)
        return CUDA_ERROR_INVALID_VALUE;
    node->work.host = host;
    node->work.host_data = data;
    return CUDA_SUCCESS;
}

static CUresult set_event(CUgraphNode node, CUevent event) {
    if (!event_is(event))
        return CUDA_ERROR_INVALID_VALUE;
    node->work.event = event;
    return CUDA_SUCCESS;
}

static CUresult set_child(CUgraphNode node, CUgraph child) {
    if (!object_is(child, OBJECT_GRAPH) || graph_memory_in(child) ||
        child->node_count != node->child->node_count)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph fresh = graph_clone(child);
    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fresh->is_child = true;
    graph_free(node->child);
    node->child = fresh;
    return CUDA_SUCCESS;
}

static CUresult set_kernel(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params) {
    CUcontext context;
    struct work work;
    CUresult result = context_find(&context);
    if (result == CUDA_SUCCESS)
        result = launch_work(context, params, &work);
    if (result == CUDA_SUCCESS)
        node->work = work;
    return result;
}

static CUresult set_copy(CUgraphNode node, const CUDA_MEMCPY3D *params) {
    struct work work;
    CUresult result = copy_box(params, &work);
    if (result == CUDA_SUCCESS)
        node->work = work;
    return result;
}

static CUresult set_fill(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params) {
    struct work work;
    CUresult result = copy_fill(params, &work);
    if (result == CUDA_SUCCESS)
        node->work = work;
    return result;
}

static CUresult set(CUgraphNode node, const CUgraphNodeParams *params) {
    if (!node || node->type != params->type)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS kernel = graph_kernel_of_v3(&params->kernel);
        return set_kernel(node, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return set_copy(node, &params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS fill = graph_fill_of_v2(&params->memset);
        return set_fill(node, &fill);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
        return set_host(node, params->host.fn, params->host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return set_child(node, params->graph.graph);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return set_event(node, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return set_event(node, params->eventRecord.event);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(node, OBJECT_NODE) || !params)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    bool is_fixed = node->type == CU_GRAPH_NODE_TYPE_GRAPH; /* a graph keeps its child graphs */
    return driver_leave(is_fixed ? CUDA_ERROR_NOT_SUPPORTED : set(node, params));
}

/* The node of an executable graph that stands for `node`; NULL = none. */
static CUgraphNode node_in(CUgraphExec exec, CUgraphNode node) {
    return object_is(exec, OBJECT_GRAPH_EXEC) ? graph_find_copy(exec->graph, node) : NULL;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    return driver_leave(params ? set(node_in(exec, node), params) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *params) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    CUgraphNode target = node_in(exec, node);
    bool good = target && target->type == CU_GRAPH_NODE_TYPE_KERNEL && params;
    return driver_leave(good ? set_kernel(target, params) : CUDA_ERROR_INVALID_VALUE);
}
