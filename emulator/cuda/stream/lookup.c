#include "cuda/stream/lookup.h"

#include "cuda/context/context.h"
#include "cuda/stream/awaited.h"

static _Thread_local CUstream thread_default; /* the meaning of handle 0; NULL = the legacy default stream */

CUstream stream_set_default(CUstream stream) {
    CUstream before = thread_default;
    thread_default = stream;
    return before;
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
    CUstream stream = link_new(context, CU_STREAM_DEFAULT, STREAM_LEAST_PRIORITY);
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

CUstream stream_make(CUcontext context, unsigned flags, int priority) {
    priority = priority > STREAM_LEAST_PRIORITY      ? STREAM_LEAST_PRIORITY
               : priority < STREAM_GREATEST_PRIORITY ? STREAM_GREATEST_PRIORITY
                                                     : priority;
    return link_new(context, flags, priority);
}
