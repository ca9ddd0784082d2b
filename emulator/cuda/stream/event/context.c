/* Events of whole contexts. Such a record comes after all work submitted to the context; such a wait holds
 * all later work of the context. The record has a part in each stream and is committed with its last part.
 * A primary context's work includes that of its green contexts. A green context's work is only its own. */
#include "cuda/context/context.h"
#include "cuda/stream/awaited.h"
#include "cuda/stream/capture/capture.h"
#include "cuda/stream/event/event.h"
#include "cuda/stream/queue.h"
#include "cuda/stream/stream.h"

/* True if the work of `other` counts as work of `context`. */
static bool is_part(CUcontext context, CUcontext other) {
    return other == context || (other->charged && other->owner == context);
}

static bool captures(CUcontext context) {
    bool found = false;
    for (CUcontext other = context_first(); other; other = other->next)
        if (is_part(context, other))
            found = capture_in_context(other) || found;
    return found;
}

static unsigned stream_count(CUcontext context) {
    unsigned count = 0;
    for (CUcontext other = context_first(); other; other = other->next) {
        count += is_part(context, other);
        for (CUstream stream = other->streams; stream && is_part(context, other); stream = stream->next)
            count++;
    }
    return count;
}

static CUresult submit_everywhere(CUcontext context, const struct work *work) {
    CUresult result = CUDA_SUCCESS;
    for (CUcontext other = context_first(); other; other = other->next) {
        if (!is_part(context, other))
            continue;
        CUresult one = queue_submit(other->legacy, work);
        for (CUstream stream = other->streams; stream; stream = stream->next)
            one = one ? one : queue_submit(stream, work);
        result = result ? result : one;
    }
    return result;
}

static CUresult record(CUcontext context, CUevent event) {
    if (captures(context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    event_forget_capture(event);
    event->whole = ++event->ticket;
    event->parts = stream_count(context);
    event->parts_mark = 0;
    struct work work = {.kind = WORK_RECORD, .event = event, .ticket = event->ticket};
    return submit_everywhere(context, &work);
}

static CUresult wait(CUcontext context, CUevent event) {
    if (event->capture_id && !capture_is_under_way(event->capture_id))
        return CUDA_ERROR_CAPTURED_EVENT;
    if (captures(context) || event->capture_id)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!event->ticket)
        return CUDA_SUCCESS;
    for (CUcontext other = context_first(); other; other = other->next)
        if (is_part(context, other) && !event_await(other, event))
            return CUDA_ERROR_OUT_OF_MEMORY;
    struct work work = {.kind = WORK_WAIT, .event = event, .ticket = event->ticket};
    return submit_everywhere(context, &work);
}

/* Enters and checks both handles: neither needs a current context. */
static CUresult enter(CUcontext context, CUevent event) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(context, OBJECT_CONTEXT) || !context->charged)
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    return event_is(event) ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
    CUresult entered = enter(context, event);
    if (entered)
        return entered;
    bool same = event->context->owner == context->owner;
    return driver_leave(same ? record(context, event) : CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuCtxWaitEvent(CUcontext context, CUevent event) {
    CUresult entered = enter(context, event);
    return entered ? entered : driver_leave(wait(context, event));
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event) {
    CUcontext context;
    CUresult result = cuCtxFromGreenCtx(&context, green);
    return result ? result : cuCtxRecordEvent(context, event);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event) {
    CUcontext context;
    CUresult result = cuCtxFromGreenCtx(&context, green);
    return result ? result : cuCtxWaitEvent(context, event);
}
