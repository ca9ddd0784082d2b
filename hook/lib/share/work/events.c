/* Our events in the program's streams. Recording is a call of the driver, and may take long. The lock is
 * released for that time. The meter counts a user and a launch under way, so neither the meter nor its burst
 * ends. */
#include "clock.h"
#include "driver/driver.h"
#include "share/captures.h"
#include "share/gate.h"
#include "share/work/meters.h"

#define SHARES (&plimsoll.shares)

/* --- handles ---------------------------------------------------------------------------------------------
 */

void plimsoll_event_spare(struct plimsoll_meter *meter, CUevent event) {
    if (event && meter->events.spare_count < sizeof(meter->events.spares) / sizeof(meter->events.spares[0]))
        meter->events.spares[meter->events.spare_count++] = event;
}

/* An event belongs to the context that is current when the event is made. The stream's context may be another
 * one. */
static CUevent make_event(uint64_t context) {
    CUevent event = NULL;
    CUcontext popped, of = (CUcontext)(uintptr_t)context; // NOLINT
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (CALLED(cuCtxPushCurrent_v2)(of) != CUDA_SUCCESS)
        return NULL;
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    if (CALLED(cuEventCreate)(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        event = NULL;
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    CALLED(cuCtxPopCurrent_v2)(&popped);
    return event;
}

/* An event of the context, from its spare ones or new; NULL where the driver gives none. Call this without
 * the lock. */
static CUevent take_event(struct plimsoll_meter *meter) {
    pthread_mutex_lock(&SHARES->lock);
    CUevent event = meter->events.spare_count > 0 ? meter->events.spares[--meter->events.spare_count] : NULL;
    uint64_t context = meter->context;
    pthread_mutex_unlock(&SHARES->lock);
    return event || context == 0 ? event : make_event(context);
}

/* --- recording -------------------------------------------------------------------------------------------
 */

/* After these errors the context is lost. */
static bool is_final(CUresult result) {
    return result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
           (result >= CUDA_ERROR_ILLEGAL_ADDRESS && result <= CUDA_ERROR_LAUNCH_FAILED);
}

/* The driver would break a capture that is under way. So captures wait during the record, or nothing is
 * recorded. */
static CUresult record_behind_all(uint64_t context, CUevent event) {
    if (!plimsoll_begin_query())
        return CUDA_ERROR_NOT_READY;
    CUresult result = CALLED(cuCtxRecordEvent)((CUcontext)(uintptr_t)context, event); // NOLINT
    plimsoll_end_query();
    return result;
}

/* Call this without the lock. */
static CUresult record(struct plimsoll_meter *meter, uint64_t context, CUstream stream,
                       struct plimsoll_event *event) {
    event->handle = take_event(meter);
    event->recorded_ns = plimsoll_now_ns();
    if (!event->handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return event->stream == PLIMSOLL_WHOLE_CONTEXT ? record_behind_all(context, event->handle)
                                                   : CALLED(cuEventRecord)(event->handle, stream);
}

/* False: the event was not recorded. If the context ended in between, its events ended with it. */
static bool keep(struct plimsoll_meter *meter, struct plimsoll_event *event, CUresult result) {
    if (result == CUDA_SUCCESS && meter->events.count < PLIMSOLL_EVENTS) {
        event->serial = ++SHARES->serial;
        meter->events.at[meter->events.count++] = *event;
        return true;
    }
    plimsoll_event_spare(meter, event->handle);
    meter->is_broken |= is_final(result);
    return false;
}

/* True: the event is recorded, or its context ended. */
static bool make(struct plimsoll_meter *meter, CUstream stream, struct plimsoll_event *event) {
    uint64_t life = meter->life, context = meter->context;
    meter->users++;
    meter->launching++;
    pthread_mutex_unlock(&SHARES->lock);
    CUresult result = record(meter, context, stream, event);
    pthread_mutex_lock(&SHARES->lock);
    meter->users--;
    if (meter->life != life)
        return true;
    meter->launching--;
    return keep(meter, event, result);
}

uint64_t plimsoll_record_begin(struct plimsoll_meter *meter, CUstream stream, bool is_blocked) {
    struct plimsoll_event event = {
        .stream = plimsoll_stream_key(stream), .is_begin = true, .is_blocked = is_blocked};
    (void)make(meter, stream, &event);
    return event.serial;
}

void plimsoll_record_sample(struct plimsoll_meter *meter, CUstream stream, unsigned stands_for) {
    struct plimsoll_event event = {.stream = plimsoll_stream_key(stream),
                                   .launches = 1,
                                   .stands_for = stands_for,
                                   .entered_ns = meter->pace.entered_ns};
    (void)make(meter, stream, &event);
}

/* The time by which everything launched so far should be done. */
static uint64_t due_ns(const struct plimsoll_meter *meter, uint64_t entered_ns) {
    uint64_t from_ns = plimsoll_later(meter->pace.reached_ns, entered_ns);
    uint64_t queued_ns = plimsoll_outstanding(meter) * meter->pace.average_ns;
    return queued_ns ? from_ns + queued_ns * plimsoll_gate_sharers() : 0;
}

void plimsoll_record_behind(struct plimsoll_meter *meter, CUstream stream) {
    uint64_t key = plimsoll_stream_key(stream), life = meter->life;
    struct plimsoll_stream *known = plimsoll_stream_in(meter, key);
    struct plimsoll_event event = {.stream = key,
                                   .launches = known ? known->tail : 0,
                                   .entered_ns =
                                       known && known->tail ? known->entered_ns : meter->pace.entered_ns};
    event.stands_for = event.launches;
    event.due_ns = due_ns(meter, event.entered_ns);
    event.is_first = known && known->is_fresh && !known->has_begin;
    if (known) {
        known->tail = 0;
        known->is_fresh = false;
    }
    if (make(meter, stream, &event) || meter->life != life)
        return;
    known = plimsoll_stream_for(meter, key);
    if (known) {
        known->tail += event.launches;
        known->entered_ns = event.entered_ns;
    }
}

/* Whether some stream's work is behind something that blocks. For a blocked stream without work, nobody knows
 * whether it is still blocked. */
static bool is_blocked(const struct plimsoll_meter *meter) {
    for (unsigned i = 0; i < meter->events.count; i++)
        if (meter->events.at[i].is_blocked)
            return true;
    return false;
}

void plimsoll_record_context(struct plimsoll_meter *meter) {
    struct plimsoll_stream before[PLIMSOLL_STREAMS];
    unsigned count = meter->streams.count;
    struct plimsoll_event event = {.stream = PLIMSOLL_WHOLE_CONTEXT, .entered_ns = meter->pace.entered_ns};
    if (!HAS(cuCtxRecordEvent) || !plimsoll_events_have_room(meter) || is_blocked(meter))
        return;
    event.due_ns = due_ns(meter, event.entered_ns);
    for (unsigned i = 0; i < count; i++) {
        before[i] = meter->streams.at[i];
        event.launches += before[i].tail;
        meter->streams.at[i].tail = 0;
    }
    event.stands_for = event.launches;
    uint64_t life = meter->life;
    if (make(meter, NULL, &event) || meter->life != life)
        return;
    for (unsigned i = 0; i < count; i++) {
        struct plimsoll_stream *stream = plimsoll_stream_in(meter, before[i].key);
        if (stream)
            stream->tail += before[i].tail;
    }
}

bool plimsoll_events_have_room(const struct plimsoll_meter *meter) {
    return meter->events.count + 2 < PLIMSOLL_EVENTS;
}
