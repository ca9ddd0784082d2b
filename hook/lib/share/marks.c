/* Recording is a call of the driver, and may take long. The lock is released for that time. The meter counts
 * a user and a launch under way, so neither the meter nor its burst ends. */
#include "share/marks.h"

#include "clock.h"
#include "driver/driver.h"
#include "share/captures.h"
#include "share/estimates.h"
#include "share/gate.h"
#include "share/meters.h"

#define SHARES (&plimsoll.shares)

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
                       struct plimsoll_mark *mark) {
    mark->event = plimsoll_event_take(meter);
    mark->recorded_ns = plimsoll_now_ns();
    if (!mark->event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return mark->stream == PLIMSOLL_WHOLE_CONTEXT ? record_behind_all(context, mark->event)
                                                  : CALLED(cuEventRecord)(mark->event, stream);
}

/* False: the mark was not recorded. If the context ended in between, its events ended with it. */
static bool keep(struct plimsoll_meter *meter, struct plimsoll_mark *mark, CUresult result) {
    if (result == CUDA_SUCCESS && meter->mark_count < PLIMSOLL_MARKS) {
        mark->serial = ++SHARES->serial;
        meter->marks[meter->mark_count++] = *mark;
        return true;
    }
    plimsoll_spare(meter, mark->event);
    meter->is_broken |= is_final(result);
    return false;
}

/* True: the mark is recorded, or its context ended. */
static bool make(struct plimsoll_meter *meter, CUstream stream, struct plimsoll_mark *mark) {
    uint64_t life = meter->life, context = meter->context;
    meter->users++;
    meter->launching++;
    pthread_mutex_unlock(&SHARES->lock);
    CUresult result = record(meter, context, stream, mark);
    pthread_mutex_lock(&SHARES->lock);
    meter->users--;
    if (meter->life != life)
        return true;
    meter->launching--;
    return keep(meter, mark, result);
}

uint64_t plimsoll_mark_begin(struct plimsoll_meter *meter, CUstream stream, bool is_blocked) {
    struct plimsoll_mark mark = {
        .stream = plimsoll_stream_key(stream), .is_begin = true, .is_blocked = is_blocked};
    (void)make(meter, stream, &mark);
    return mark.serial;
}

void plimsoll_mark_sample(struct plimsoll_meter *meter, CUstream stream, unsigned stands_for) {
    struct plimsoll_mark mark = {.stream = plimsoll_stream_key(stream),
                                 .launches = 1,
                                 .stands_for = stands_for,
                                 .entered_ns = meter->entered_ns};
    (void)make(meter, stream, &mark);
}

/* The time by which everything launched so far should be done. */
static uint64_t due_ns(const struct plimsoll_meter *meter, uint64_t entered_ns) {
    uint64_t from_ns = plimsoll_later(meter->reached_ns, entered_ns);
    uint64_t queued_ns = plimsoll_outstanding(meter) * meter->average_ns;
    return queued_ns ? from_ns + queued_ns * plimsoll_gate_sharers() : 0;
}

void plimsoll_mark_behind(struct plimsoll_meter *meter, CUstream stream) {
    uint64_t key = plimsoll_stream_key(stream), life = meter->life;
    struct plimsoll_stream *known = plimsoll_stream_in(meter, key);
    struct plimsoll_mark mark = {.stream = key,
                                 .launches = known ? known->tail : 0,
                                 .entered_ns = known && known->tail ? known->entered_ns : meter->entered_ns};
    mark.stands_for = mark.launches;
    mark.due_ns = due_ns(meter, mark.entered_ns);
    mark.is_first = known && known->is_fresh && !known->has_begin;
    if (known) {
        known->tail = 0;
        known->is_fresh = false;
    }
    if (make(meter, stream, &mark) || meter->life != life)
        return;
    known = plimsoll_stream_for(meter, key);
    if (known) {
        known->tail += mark.launches;
        known->entered_ns = mark.entered_ns;
    }
}

/* Whether some stream's work is behind something that blocks. For a blocked stream without work, nobody knows
 * whether it is still blocked. */
static bool is_blocked(const struct plimsoll_meter *meter) {
    for (unsigned i = 0; i < meter->mark_count; i++)
        if (meter->marks[i].is_blocked)
            return true;
    return false;
}

void plimsoll_mark_context(struct plimsoll_meter *meter) {
    struct plimsoll_stream before[PLIMSOLL_STREAMS];
    unsigned count = meter->stream_count;
    struct plimsoll_mark mark = {.stream = PLIMSOLL_WHOLE_CONTEXT, .entered_ns = meter->entered_ns};
    if (!HAS(cuCtxRecordEvent) || !plimsoll_marks_have_room(meter) || is_blocked(meter))
        return;
    mark.due_ns = due_ns(meter, mark.entered_ns);
    for (unsigned i = 0; i < count; i++) {
        before[i] = meter->streams[i];
        mark.launches += before[i].tail;
        meter->streams[i].tail = 0;
    }
    mark.stands_for = mark.launches;
    uint64_t life = meter->life;
    if (make(meter, NULL, &mark) || meter->life != life)
        return;
    for (unsigned i = 0; i < count; i++) {
        struct plimsoll_stream *stream = plimsoll_stream_in(meter, before[i].key);
        if (stream)
            stream->tail += before[i].tail;
    }
}

bool plimsoll_marks_have_room(const struct plimsoll_meter *meter) {
    return meter->mark_count + 2 < PLIMSOLL_MARKS;
}
