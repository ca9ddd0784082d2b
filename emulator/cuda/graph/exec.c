/* Executable graphs: instantiation, update, launch. */
#include "cuda/context/context.h"
#include "cuda/graph/memory.h"
#include "cuda/stream/capture/record.h"
#include "cuda/stream/event/event.h"
#include "cuda/stream/submit.h"

/* Sorts the nodes topologically: each round takes all nodes whose dependencies have been taken. False if
 * the graph has a cycle. */
static bool sort(CUgraph graph) {
    CUgraphNode sorted = NULL, *end = &sorted, last = NULL;
    unsigned taken = 0;
    for (CUgraphNode node = graph->first; node; node = node->next)
        node->order = 0;
    while (graph->first) {
        bool any = false;
        for (CUgraphNode *link = &graph->first; *link;) {
            CUgraphNode node = *link;
            bool ready = true;
            for (size_t i = 0; i < node->dependency_count && ready; i++)
                ready = node->dependencies[i]->order != 0;
            if (!ready) {
                link = &node->next;
                continue;
            }
            *link = node->next;
            node->next = NULL;
            node->order = ++taken;
            *end = last = node;
            end = &node->next;
            any = true;
        }
        if (!any)
            break;
    }
    bool acyclic = !graph->first;
    *end = graph->first;
    graph->first = sorted;
    graph->last = acyclic ? last : graph->last;
    return acyclic;
}

static CUresult instantiate(CUgraphExec *result, CUgraph graph, unsigned long long flags) {
    const unsigned long long known =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (!result || (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    if (!object_is(graph, OBJECT_GRAPH))
        return CUDA_ERROR_INVALID_HANDLE;
    if (graph_memory_in(graph) && graph->instances)
        return CUDA_ERROR_INVALID_VALUE; /* the graph's addresses can be in use only once */
    CUgraphExec exec = object_new(OBJECT_GRAPH_EXEC, sizeof *exec);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->graph = graph_clone(graph);
    exec->flags = flags;
    if (exec->graph && sort(exec->graph)) {
        graph->instances++;
        *result = exec;
        return CUDA_SUCCESS;
    }
    CUresult failure = exec->graph ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    if (exec->graph)
        graph_free(exec->graph);
    object_free(exec);
    return failure;
}

static void discard(CUgraphExec exec) {
    graph_memory_destroyed(exec);
    CUgraph source = exec->graph->source; /* the source may be freed and its address used again */
    if (object_is(source, OBJECT_GRAPH) && source->id == exec->graph->source_id)
        source->instances--;
    graph_free(exec->graph);
    object_free(exec);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    CUresult result = instantiate(exec, graph, flags);
    if (result == CUDA_SUCCESS && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))
        result = graph_memory_upload(*exec, context->legacy);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && object_is(*exec, OBJECT_GRAPH_EXEC))
        discard(*exec);
    return driver_leave(result);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuGraphInstantiateWithFlags(exec, graph, params->flags);
    params->hErrNode_out = NULL;
    params->result_out = result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return result;
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t size) {
    if (error_node)
        *error_node = NULL;
    if (log && size)
        *log = '\0';
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

static CUresult launch_nodes(CUgraph graph, CUstream stream) {
    CUresult result = CUDA_SUCCESS;
    for (CUgraphNode node = graph->first; node && result == CUDA_SUCCESS; node = node->next) {
        struct work work = node->work;
        if (node->child)
            result = launch_nodes(node->child, stream);
        if (work.event && !object_is(work.event, OBJECT_EVENT))
            return CUDA_ERROR_INVALID_HANDLE;
        if (work.kind == WORK_RECORD)
            work.ticket = ++work.event->ticket;
        else if (work.kind == WORK_WAIT)
            work.ticket = work.event->ticket;
        bool acts = work.effect || work.length_ns || work.kind != WORK_DEVICE;
        if (acts)
            result = submit(stream, &work);
    }
    return result;
}

/* A graph launched into a capturing stream becomes a child of the captured graph. */
static CUresult capture_launch(CUgraphExec exec, CUstream stream) {
    struct work work = {.kind = WORK_DEVICE, .type = CU_GRAPH_NODE_TYPE_GRAPH, .child = exec->graph};
    return capture_work(stream, &work);
}

static CUresult launch(CUgraphExec exec, CUstream handle) {
    CUstream stream;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    if (!object_is(exec, OBJECT_GRAPH_EXEC))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (capture_of(stream))
        return driver_leave(capture_launch(exec, stream));
    CUresult result = graph_memory_launch(exec, stream);
    if (result == CUDA_SUCCESS) {
        result = launch_nodes(exec->graph, stream);
        graph_memory_launched(exec, stream);
    }
    return driver_leave(result);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    uint64_t began_ns = driver_prepare(driver.book.node.launch_ns);
    return driver_last(began_ns, driver.book.node.launch_ns, launch(exec, stream));
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream handle) {
    CUstream stream;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    if (!object_is(exec, OBJECT_GRAPH_EXEC))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    return driver_leave(graph_memory_upload(exec, stream));
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(exec, OBJECT_GRAPH_EXEC))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    discard(exec);
    return driver_leave(CUDA_SUCCESS);
}

static CUresult update(CUgraphExec exec, CUgraph graph, CUgraphNode *failed,
                       CUgraphExecUpdateResult *reason) {
    CUgraphExec fresh;
    *reason = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    *failed = NULL;
    if (graph->node_count != exec->graph->node_count)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    *reason = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    if (graph_memory_in(graph) || graph_memory_in(exec->graph))
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    CUresult result = instantiate(&fresh, graph, 0);
    if (result)
        return result;
    *reason = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    CUgraphNode one = exec->graph->first, other = fresh->graph->first;
    for (; one && *reason == CU_GRAPH_EXEC_UPDATE_SUCCESS; one = one->next, other = other->next) {
        if (one->type != other->type || one->dependency_count != other->dependency_count) {
            *reason = one->type != other->type ? CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED
                                               : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
            *failed = other->origin;
        }
    }
    if (*reason == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        CUgraph old = exec->graph;
        exec->graph = fresh->graph;
        fresh->graph = old;
    }
    discard(fresh);
    return *reason == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
    CUgraphExecUpdateResultInfo unread;
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(exec, OBJECT_GRAPH_EXEC) || !object_is(graph, OBJECT_GRAPH))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    info = info ? info : &unread;
    info->errorFromNode = NULL;
    return driver_leave(update(exec, graph, &info->errorNode, &info->result));
}
