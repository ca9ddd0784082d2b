#include "cuda/stream/capture/record.h"

#include <string.h>

#include "cuda/context/context.h"
#include "cuda/graph/allocation.h"
#include "cuda/graph/graph.h"
#include "cuda/memory/pool/pool.h"
#include "cuda/stream/event/event.h"

bool capture_set_tips(CUstream stream, const CUgraphNode *nodes, size_t count) {
    CUgraphNode *tips = malloc((count + 1) * sizeof *tips);
    if (!tips)
        return false;
    if (count)
        memcpy(tips, nodes, count * sizeof *tips);
    free(stream->tips);
    stream->tips = tips;
    stream->tip_count = count;
    return true;
}

static void leave(CUstream stream) {
    stream->capture = NULL;
    free(stream->tips);
    stream->tips = NULL;
    stream->tip_count = 0;
}

static bool add_tip(CUstream stream, CUgraphNode node) {
    for (size_t i = 0; i < stream->tip_count; i++)
        if (stream->tips[i] == node)
            return true;
    CUgraphNode *tips = realloc(stream->tips, (stream->tip_count + 1) * sizeof *tips);
    if (!tips)
        return false;
    stream->tips = tips;
    tips[stream->tip_count++] = node;
    return true;
}

static CUresult join(CUstream stream, CUevent event) {
    struct capture *capture = capture_find(event->capture_id);
    if (!capture)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream == stream->context->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (stream->capture && stream->capture != capture) {
        capture->invalid = stream->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    stream->capture = capture;
    for (size_t i = 0; i < event->captured_count; i++)
        if (!add_tip(stream, event->captured[i]))
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

static CUresult record(CUstream stream, CUevent event) {
    CUgraphNode *nodes = malloc((stream->tip_count + 1) * sizeof *nodes);
    if (!nodes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (stream->tip_count)
        memcpy(nodes, stream->tips, stream->tip_count * sizeof *nodes);
    event_forget_capture(event);
    event->captured = nodes;
    event->captured_count = stream->tip_count;
    event->capture_id = stream->capture->id;
    return CUDA_SUCCESS;
}

static CUresult add(CUstream stream, const struct work *work, CUgraphNode *result) {
    if (work->type == CU_GRAPH_NODE_TYPE_GRAPH && graph_memory_in(work->child))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUgraphNode node = graph_add(stream->capture->graph, work->type, stream->tips, stream->tip_count);
    if (!node || !capture_set_tips(stream, &node, 1))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *result = node;
    if (work->type != CU_GRAPH_NODE_TYPE_GRAPH) {
        node->work = *work;
        return CUDA_SUCCESS;
    }
    node->child = graph_clone(work->child);
    return node->child ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult capture_work(CUstream stream, const struct work *work) {
    CUgraphNode node;
    if (stream->capture && stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (work->kind == WORK_WAIT)
        return join(stream, work->event);
    if (work->kind == WORK_RECORD)
        return record(stream, work->event);
    return add(stream, work, &node);
}

CUresult capture_allocation(CUstream stream, CUmemoryPool pool, CUdeviceptr *address, size_t bytes) {
    CUgraphNode node;
    struct work work = {.kind = WORK_DEVICE, .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = pool->device}},
        .bytesize = bytes};
    struct graph_allocation *allocation;
    CUresult result = graph_memory_new(&params, &allocation);
    if (result)
        return result;
    result = add(stream, &work, &node);
    if (result) {
        graph_memory_drop(allocation);
        return result;
    }
    node->allocation = allocation;
    *address = node->address = allocation->base;
    return CUDA_SUCCESS;
}

CUresult capture_free(CUstream stream, CUdeviceptr address) {
    CUgraphNode node;
    struct work work = {.kind = WORK_DEVICE, .type = CU_GRAPH_NODE_TYPE_MEM_FREE};
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (graph_memory_frees(stream->capture->graph, address))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = add(stream, &work, &node);
    if (result == CUDA_SUCCESS)
        node->address = address;
    return result;
}

static void leave_everywhere(const struct capture *capture) {
    for (CUcontext context = context_first(); context; context = context->next)
        for (CUstream stream = context->streams; stream; stream = stream->next)
            if (stream->capture == capture)
                leave(stream);
}

void capture_discard(struct capture *capture) {
    capture_delist(capture);
    leave_everywhere(capture);
    free(capture);
}

void capture_forget_stream(CUstream stream) {
    struct capture *capture = stream->capture;
    if (!capture)
        return;
    capture->invalid = true;
    if (capture->origin != stream) {
        leave(stream);
        return;
    }
    if (!capture->graph_is_given)
        graph_free(capture->graph);
    capture_discard(capture);
}

void capture_forget_context(CUcontext context) {
    for (CUstream stream = context->streams; stream; stream = stream->next)
        capture_forget_stream(stream);
}
