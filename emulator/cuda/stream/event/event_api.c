/* The API of events: create, record, wait, query. */
#include "book/timeline.h"
#include "cuda/context/context.h"
#include "cuda/memory/pool/pool.h"
#include "cuda/stream/capture/capture.h"
#include "cuda/stream/capture/record.h"
#include "cuda/stream/event/event.h"
#include "cuda/stream/submit.h"

static CUresult create(CUcontext context, CUevent *result, unsigned flags) {
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!result || (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    CUevent event = event_new(context, flags);
    if (event)
        *result = event;
    return event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    return entered ? entered : driver_leave(create(context, event, flags));
}

CUresult cuEventDestroy_v2(CUevent event) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!event_is(event))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    event->dying = true;
    event->uses++;
    event_release(event);
    return driver_leave(CUDA_SUCCESS);
}

static CUresult record(CUevent event, CUstream handle) {
    CUstream stream;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    if (!event_is(event) || event->context->owner != stream->context->owner)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    struct work work = {.kind = WORK_RECORD, .event = event, .ticket = event->ticket + 1};
    if (!stream->capture) {
        event->ticket++;
        event_forget_capture(event);
    }
    return driver_leave(submit(stream, &work));
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    uint64_t began_ns = book_now_ns();
    return driver_last(began_ns, driver.book.node.event_ns, record(event, stream));
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
    return flags & ~1u ? CUDA_ERROR_INVALID_VALUE : cuEventRecord(event, stream);
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags) {
    CUstream stream;
    if (flags & ~1u)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    if (!event_is(event))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    struct work work = {.kind = WORK_WAIT, .event = event, .ticket = event->ticket};
    if (event->capture_id)
        return driver_leave(capture_work(stream, &work));
    if (stream->capture) {
        capture_invalidate(stream->capture);
        return driver_leave(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    return driver_leave(event->ticket ? submit(stream, &work) : CUDA_SUCCESS);
}

/* Common checks of query, synchronise and elapsed time: a record within a capture has no time. Query and
 * synchronise may invalidate a capture on another thread; NCCL's watchdog is the known case. */
static CUresult enter_event(CUevent event, bool unsafe) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!event_is(event))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (event->capture_id)
        return driver_leave(CUDA_ERROR_CAPTURED_EVENT);
    return unsafe && !capture_permits() ? driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_SUCCESS;
}

static CUresult query(CUevent event) {
    uint64_t due_ns;
    CUresult entered = enter_event(event, true);
    if (entered)
        return entered;
    return driver_leave(event_reached(event, event->ticket, &due_ns) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult cuEventQuery(CUevent event) {
    uint64_t began_ns = book_now_ns();
    return driver_last(began_ns, driver.book.node.query_ns, query(event));
}

CUresult cuEventSynchronize(CUevent event) {
    CUresult entered = enter_event(event, true);
    if (entered)
        return entered;
    uint64_t ticket = event->ticket;
    event->uses++;
    while (true) {
        uint64_t due_ns = book_now_ns() + 1000000; /* the record itself may still wait for a host function */
        if (event_reached(event, ticket, &due_ns))
            break;
        pthread_mutex_unlock(&driver.lock);
        timeline_sleep_until(due_ns);
        pthread_mutex_lock(&driver.lock);
    }
    event_release(event);
    pool_trim_all();
    return driver_leave(CUDA_SUCCESS);
}

static CUresult elapsed(float *milliseconds, CUevent start, CUevent end) {
    uint64_t due_ns;
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    if (!start->ticket || !end->ticket || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!event_reached(start, start->ticket, &due_ns) || !event_reached(end, end->ticket, &due_ns))
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)(int64_t)(end->reached_ns - start->reached_ns) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    CUresult entered = enter_event(start, false);
    if (entered)
        return entered;
    if (!event_is(end))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    return driver_leave(elapsed(milliseconds, start, end));
}
