/* Changes of nodes by type-independent calls, and of nodes that name events or other graphs. They work in
 * a graph, and in an executable graph between its launches. */
#include "cuda/graph/graph.h"
#include "cuda/stream/event.h"

/* Changes the graph's own node if `exec` is NULL. */
static CUresult set_event(CUgraphExec exec, CUgraphNode node, CUevent event, CUgraphNodeType type) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(node, OBJECT_NODE) || node->type != type || !event_is(event))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    CUgraphNode target = exec ? graph_node_in(exec, node) : node;
    if (!target)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    target->work.event = event;
    return driver_leave(CUDA_SUCCESS);
}

static CUresult get_event(CUgraphNode node, CUevent *event, CUgraphNodeType type) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(node, OBJECT_NODE) || node->type != type || !event)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *event = node->work.event;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event) {
    return get_event(node, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event) {
    return get_event(node, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
    return set_event(NULL, node, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
    return set_event(NULL, node, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
    return exec ? set_event(exec, node, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
    return exec ? set_event(exec, node, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_child(CUgraphNode target, CUgraph child) {
    if (!target || target->type != CU_GRAPH_NODE_TYPE_GRAPH || !object_is(child, OBJECT_GRAPH) ||
        graph_memory_in(child) || child->node_count != target->child->node_count)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph fresh = graph_clone(child);
    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fresh->is_child = true;
    graph_free(target->child);
    target->child = fresh;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(set_child(graph_node_in(exec, node), child));
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS kernel = graph_kernel_of_v3(&params->kernel);
        return cuGraphKernelNodeSetParams_v2(node, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphMemcpyNodeSetParams(node, &params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS fill = graph_fill_of_v2(&params->memset);
        return cuGraphMemsetNodeSetParams(node, &fill);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        CUDA_HOST_NODE_PARAMS host = {.fn = params->host.fn, .userData = params->host.userData};
        return cuGraphHostNodeSetParams(node, &host);
    }
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphEventWaitNodeSetEvent(node, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphEventRecordNodeSetEvent(node, params->eventRecord.event);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS kernel = graph_kernel_of_v3(&params->kernel);
        return cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphExecMemcpyNodeSetParams(exec, node, &params->memcpy.copyParams, params->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS fill = graph_fill_of_v2(&params->memset);
        return cuGraphExecMemsetNodeSetParams(exec, node, &fill, params->memset.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        CUDA_HOST_NODE_PARAMS host = {.fn = params->host.fn, .userData = params->host.userData};
        return cuGraphExecHostNodeSetParams(exec, node, &host);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return cuGraphExecChildGraphNodeSetParams(exec, node, params->graph.graph);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphExecEventWaitNodeSetEvent(exec, node, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphExecEventRecordNodeSetEvent(exec, node, params->eventRecord.event);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}
