#include "cuda/stream/submit.h"

#include "cuda/context/context.h"
#include "cuda/stream/capture/capture.h"
#include "cuda/stream/capture/record.h"
#include "cuda/stream/lookup.h"
#include "cuda/stream/queue.h"

CUresult submit_enter(CUstream handle, CUstream *stream) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    *stream = stream_of(context, handle);
    return *stream ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult submit(CUstream stream, const struct work *work) {
    if (stream->capture)
        return capture_work(stream, work);
    if (capture_meets_legacy(stream))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return queue_submit(stream, work);
}

CUresult submit_and_finish(CUstream stream, const struct work *work) {
    if (stream->capture || !capture_permits())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult result = submit(stream, work);
    if (result == CUDA_SUCCESS)
        queue_finish(stream);
    return result;
}
