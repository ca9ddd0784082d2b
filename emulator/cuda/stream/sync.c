/* Synchronisation of streams and contexts, and host functions within streams. */
#include "cuda/context/context.h"
#include "cuda/memory/pool/pool.h"
#include "cuda/stream/capture/capture.h"
#include "cuda/stream/queue.h"
#include "cuda/stream/stream.h"
#include "cuda/stream/submit.h"

/* Enters and finds the stream. Invalidates the capture of a stream that captures. */
static CUresult enter(CUstream handle, CUstream *stream) {
    CUresult entered = submit_enter(handle, stream);
    if (entered || !(*stream)->capture)
        return entered;
    capture_invalidate((*stream)->capture);
    return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult cuStreamSynchronize(CUstream handle) {
    CUstream stream;
    CUresult entered = enter(handle, &stream);
    if (entered)
        return entered;
    if (stream == stream->context->legacy)
        queue_finish_context(stream->context);
    else
        queue_finish(stream);
    pool_trim_all();
    return driver_leave(CUDA_SUCCESS);
}

static CUresult query(CUstream handle) {
    CUstream stream;
    CUresult entered = enter(handle, &stream);
    if (entered)
        return entered;
    return driver_leave(queue_is_done(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult cuStreamQuery(CUstream stream) {
    uint64_t began_ns = book_now_ns();
    return driver_last(began_ns, driver.book.node.query_ns, query(stream));
}

CUresult cuCtxSynchronize(void) {
    CUcontext context;
    CUresult entered = capture_enter(&context);
    if (entered)
        return entered;
    if (capture_in_context(context))
        return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    queue_finish_context(context);
    pool_trim_all();
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn host, void *data) {
    CUstream stream;
    if (!host)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    struct work work = {.kind = WORK_HOST, .type = CU_GRAPH_NODE_TYPE_HOST, .host = host, .host_data = data};
    return driver_leave(submit(stream, &work));
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data, unsigned int flags) {
    CUstream stream;
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult entered = enter(handle, &stream);
    if (entered)
        return entered;
    struct work work = {.kind = WORK_HOST, .callback = callback, .host_data = data};
    return driver_leave(submit(stream, &work));
}
