#include "cuda/stream/lifetime.h"

#include "cuda/context/context.h"
#include "cuda/stream/capture/record.h"
#include "cuda/stream/lookup.h"
#include "cuda/stream/queue.h"

void stream_free_all(CUcontext context) {
    while (context->streams) {
        queue_drop(context->streams);
        stream_free(context->streams);
    }
    if (context->legacy) {
        queue_drop(context->legacy);
        object_free(context->legacy);
    }
    context->legacy = NULL;
}

static CUresult create(CUcontext context, CUstream *result, unsigned flags, int priority) {
    if (!result || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    *result = stream_make(context, flags, priority);
    return *result ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    return entered ? entered : driver_leave(create(context, stream, flags, priority));
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    return cuStreamCreateWithPriority(stream, flags, STREAM_LEAST_PRIORITY);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (!object_is(handle, OBJECT_STREAM) || handle->dying || handle->per_thread ||
        handle == handle->context->legacy)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    capture_forget_stream(handle);
    if (handle->first)
        handle->dying = true;
    else
        stream_free(handle);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (least)
        *least = STREAM_LEAST_PRIORITY;
    if (greatest)
        *greatest = STREAM_GREATEST_PRIORITY;
    return driver_leave(CUDA_SUCCESS);
}
