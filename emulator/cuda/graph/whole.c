/* Building and inspecting graphs. */
#include "cuda/context/context.h"
#include "cuda/graph/graph.h"
#include "cuda/memory/copy/copy.h"
#include "cuda/stream/launch.h"

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!graph || flags)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *graph = graph_new();
    return driver_leave(*graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuGraphDestroy(CUgraph graph) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(graph, OBJECT_GRAPH) || graph->is_child)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    graph_free(graph);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!clone || !object_is(graph, OBJECT_GRAPH))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (graph_memory_in(graph))
        return driver_leave(CUDA_ERROR_NOT_SUPPORTED);
    *clone = graph_clone(graph);
    return driver_leave(*clone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

/* Enters with a context and checks what every added node needs. */
static CUresult enter(CUgraph graph, const void *result, const CUgraphNode *dependencies, size_t count,
                      const void *params, CUcontext *context) {
    CUresult entered = context_enter(context);
    if (entered)
        return entered;
    bool good =
        object_is(graph, OBJECT_GRAPH) && result && params && graph_owns_all(graph, dependencies, count);
    return good ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

/* Adds a node that does `work`, unless `so_far` is an error. */
static CUresult add(CUgraphNode *result, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                    CUresult so_far, const struct work *work) {
    if (so_far)
        return so_far;
    CUgraphNode node = graph_add(graph, work->type, dependencies, count);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *result = node;
    node->work = *work;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS *params) {
    CUcontext context;
    struct work work = {0};
    CUresult result = enter(graph, node, dependencies, count, params, &context);
    if (result)
        return result;
    result = launch_work(context, params, &work);
    return driver_leave(add(node, graph, dependencies, count, result, &work));
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMCPY3D *params, CUcontext copy_context) {
    CUcontext context;
    struct work work = {0};
    (void)copy_context;
    CUresult result = enter(graph, node, dependencies, count, params, &context);
    if (result)
        return result;
    result = copy_box(params, &work);
    return driver_leave(add(node, graph, dependencies, count, result, &work));
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *params, CUcontext fill_context) {
    CUcontext context;
    struct work work = {0};
    (void)fill_context;
    CUresult result = enter(graph, node, dependencies, count, params, &context);
    if (result)
        return result;
    result = copy_fill(params, &work);
    return driver_leave(add(node, graph, dependencies, count, result, &work));
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS *params) {
    CUcontext context;
    CUresult result = enter(graph, node, dependencies, count, params, &context);
    if (result)
        return result;
    struct work work = {.kind = WORK_HOST,
                        .type = CU_GRAPH_NODE_TYPE_HOST,
                        .host = params->fn,
                        .host_data = params->userData};
    result = params->fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    return driver_leave(add(node, graph, dependencies, count, result, &work));
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count) {
    CUcontext context;
    struct work work = {.kind = WORK_DEVICE, .type = CU_GRAPH_NODE_TYPE_EMPTY};
    CUresult result = enter(graph, node, dependencies, count, &work, &context);
    return result ? result : driver_leave(add(node, graph, dependencies, count, CUDA_SUCCESS, &work));
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  size_t count, CUgraph child) {
    CUcontext context;
    struct work work = {.kind = WORK_DEVICE, .type = CU_GRAPH_NODE_TYPE_GRAPH};
    CUresult result = enter(graph, node, dependencies, count, child, &context);
    if (result)
        return result;
    result = !object_is(child, OBJECT_GRAPH) ? CUDA_ERROR_INVALID_VALUE
             : graph_memory_in(child)        ? CUDA_ERROR_NOT_SUPPORTED
                                             : CUDA_SUCCESS;
    result = add(node, graph, dependencies, count, result, &work);
    if (result == CUDA_SUCCESS) {
        (*node)->child = graph_clone(child);
        result = (*node)->child ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    return driver_leave(result);
}

static CUresult add_event(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                          CUevent event, enum work_kind kind, CUgraphNodeType type) {
    CUcontext context;
    struct work work = {.kind = kind, .type = type, .event = event};
    CUresult result = enter(graph, node, dependencies, count, event, &context);
    if (result)
        return result;
    result = object_is(event, OBJECT_EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    return driver_leave(add(node, graph, dependencies, count, result, &work));
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                   size_t count, CUevent event) {
    return add_event(node, graph, dependencies, count, event, WORK_RECORD, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, CUevent event) {
    return add_event(node, graph, dependencies, count, event, WORK_WAIT, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}
