#include "cuda/stream/stream.h"

#include "cuda/stream/capture.h"
#include "cuda/context/context.h"
#include "cuda/stream/event.h"
#include "cuda/stream/work.h"

enum { LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5 };

static _Thread_local CUstream thread_default; /* what handle 0 means; NULL = the legacy default stream */
static unsigned long long last_id;            /* lock */

CUstream stream_set_default(CUstream stream) {
    CUstream before = thread_default;
    thread_default = stream;
    return before;
}

CUstream stream_new(CUcontext context, unsigned flags, int priority) {
    CUstream stream = object_new(OBJECT_STREAM, sizeof *stream);
    if (!stream)
        return NULL;
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = ++last_id;
    stream->sync_policy = CU_SYNC_POLICY_AUTO;
    return stream;
}

static CUstream link_new(CUcontext context, unsigned flags, int priority) {
    CUstream stream = stream_new(context, flags, priority);
    if (stream) {
        stream->next = context->streams;
        context->streams = stream;
        event_await_in_new(stream);
    }
    return stream;
}

static CUstream per_thread(CUcontext context) {
    for (CUstream stream = context->streams; stream; stream = stream->next)
        if (stream->per_thread && pthread_equal(stream->thread, pthread_self()))
            return stream;
    CUstream stream = link_new(context, CU_STREAM_DEFAULT, LEAST_PRIORITY);
    if (stream) {
        stream->per_thread = true;
        stream->thread = pthread_self();
    }
    return stream;
}

CUstream stream_of(CUcontext context, CUstream handle) {
    if (!handle)
        handle = thread_default;
    if (!handle || handle == CU_STREAM_LEGACY)
        return context->legacy;
    if (handle == CU_STREAM_PER_THREAD)
        return per_thread(context);
    return object_is(handle, OBJECT_STREAM) && !handle->dying ? handle : NULL;
}

bool stream_is_blocking(const struct CUstream_st *stream) {
    return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

void stream_free(CUstream stream) {
    CUstream *link = &stream->context->streams;
    while (*link && *link != stream)
        link = &(*link)->next;
    if (*link)
        *link = stream->next;
    object_free(stream);
}

void stream_free_all(CUcontext context) {
    while (context->streams) {
        work_drop(context->streams);
        stream_free(context->streams);
    }
    if (context->legacy) {
        work_drop(context->legacy);
        object_free(context->legacy);
    }
    context->legacy = NULL;
}

CUstream stream_make(CUcontext context, unsigned flags, int priority) {
    priority = priority > LEAST_PRIORITY      ? LEAST_PRIORITY
               : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY
                                              : priority;
    return link_new(context, flags, priority);
}

static CUresult create(CUcontext context, CUstream *result, unsigned flags, int priority) {
    if (!result || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    *result = stream_make(context, flags, priority);
    return *result ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
    CUcontext context;
    CUresult entered = driver_enter_context(&context);
    return entered ? entered : driver_leave(create(context, stream, flags, priority));
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    return cuStreamCreateWithPriority(stream, flags, LEAST_PRIORITY);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
    CUcontext context;
    CUresult entered = driver_enter_context(&context);
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

CUresult cuStreamDestroy(CUstream stream) {
    return cuStreamDestroy_v2(stream);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    CUcontext context;
    CUresult entered = driver_enter_context(&context);
    if (entered)
        return entered;
    if (least)
        *least = LEAST_PRIORITY;
    if (greatest)
        *greatest = GREATEST_PRIORITY;
    return driver_leave(CUDA_SUCCESS);
}
