/* Calls that begin, end and query stream captures. */
#include "cuda/stream/capture/record.h"

#include "cuda/context/context.h"
#include "cuda/graph/graph.h"
#include "cuda/stream/stream.h"
#include "cuda/stream/submit.h"

static uint64_t last_id; /* lock */

static CUresult begin(CUstream stream, CUgraph graph, const CUgraphNode *nodes, size_t count,
                      CUstreamCaptureMode mode) {
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream == stream->context->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = calloc(1, sizeof *capture);
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->graph = graph ? graph : graph_new();
    if (!capture->graph || !capture_set_tips(stream, nodes, count)) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->graph_is_given = graph != NULL;
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = pthread_self();
    capture->id = ++last_id;
    capture_enlist(capture);
    stream->capture = capture;
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    CUstream stream;
    CUresult entered = submit_enter(handle, &stream);
    return entered ? entered : driver_leave(begin(stream, NULL, NULL, 0, mode));
}

CUresult cuStreamBeginCapture(CUstream stream) {
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode) {
    CUstream stream;
    (void)edges;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    if (!object_is(graph, OBJECT_GRAPH) || !graph_owns_all(graph, dependencies, count))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(begin(stream, graph, dependencies, count, mode));
}

/* Everything captured must lead to the origin stream. If the origin never waited for another stream's last
 * node, no event would mark the end of that node's work. */
static bool is_needed(CUgraph graph, CUgraphNode node) {
    for (CUgraphNode other = graph->first; other; other = other->next)
        for (size_t i = 0; i < other->dependency_count; i++)
            if (other->dependencies[i] == node)
                return true;
    return false;
}

static bool is_tip(CUstream stream, CUgraphNode node) {
    for (size_t i = 0; i < stream->tip_count; i++)
        if (stream->tips[i] == node)
            return true;
    return false;
}

static bool all_joined(const struct capture *capture) {
    for (CUstream stream = capture->origin->context->streams; stream; stream = stream->next)
        for (size_t i = 0; stream->capture == capture && i < stream->tip_count; i++)
            if (!is_tip(capture->origin, stream->tips[i]) && !is_needed(capture->graph, stream->tips[i]))
                return false;
    return true;
}

static CUresult end(CUstream stream, CUgraph *result) {
    struct capture *capture = stream->capture;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult outcome = capture->invalid       ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                       : !all_joined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                              : CUDA_SUCCESS;
    *result = outcome == CUDA_SUCCESS ? capture->graph : NULL;
    if (outcome && !capture->graph_is_given)
        graph_free(capture->graph);
    capture_discard(capture);
    return outcome;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    CUstream stream;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    return driver_leave(graph ? end(stream, graph) : CUDA_ERROR_INVALID_VALUE);
}

static CUstreamCaptureStatus status_of(CUstream stream) {
    if (!stream->capture)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    CUstream stream;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    if (!status)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (capture_meets_legacy(stream))
        return driver_leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    *status = status_of(stream);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies, size_t *count) {
    CUstream stream;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    if (!status)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *status = status_of(stream);
    bool active = *status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (id)
        *id = active ? stream->capture->id : 0;
    if (graph)
        *graph = active ? stream->capture->graph : NULL;
    if (dependencies)
        *dependencies = active ? stream->tips : NULL;
    if (count)
        *count = active ? stream->tip_count : 0;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id) {
    return cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies,
                                   const CUgraphEdgeData **edges, size_t *count) {
    if (edges)
        *edges = NULL;
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    CUstreamCaptureMode before = capture_thread_mode;
    capture_thread_mode = *mode;
    *mode = before;
    return driver_leave(CUDA_SUCCESS);
}
