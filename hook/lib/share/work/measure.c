/* The two halves of a measured launch. An event follows the first launch of a segment and every few launches
 * after it. An event stands at the beginning of a segment only behind something that blocks the stream. In an
 * idle stream such an event would get the process's slice, and would give the slice away before the launch
 * comes. */
#include <errno.h>

#include "clock.h"
#include "share/work/meters.h"

#define SHARES (&plimsoll.shares)

/* Work that no event follows yet is only estimated. It may come to this much. */
#define TAIL_MOST_NS 300000
/* An event follows after this many launches, however short they are. */
#define TAIL_MOST 16
/* The usual length of the driver's call. */
#define CALL_NS 2000

/* --- the first half --------------------------------------------------------------------------------------
 */

/* If the latest event should have been reached by now and nothing follows it, the segment may have ended
 * there. */
static bool may_be_idle(const struct plimsoll_meter *meter, uint64_t now_ns) {
    return meter->events.count > 0 && meter->launching == 0 &&
           now_ns > meter->pace.entered_ns + plimsoll_outstanding(meter) * meter->pace.average_ns;
}

struct plimsoll_meter *plimsoll_use_meter(uint64_t context, int gpu) {
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = plimsoll_meter_of(context, gpu);
    bool is_poll_due = meter && !meter->is_broken && may_be_idle(meter, plimsoll_now_ns());
    if (meter)
        meter->users++;
    pthread_mutex_unlock(&SHARES->lock);
    if (is_poll_due)
        plimsoll_poll_meter(meter);
    return meter;
}

bool plimsoll_can_measure(uint64_t context, CUstream handle) {
    for (struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next) {
        if (meter->context != context)
            continue;
        const struct plimsoll_stream *stream = plimsoll_stream_in(meter, plimsoll_stream_key(handle));
        return meter->is_broken || (stream && stream->is_open) || plimsoll_events_have_room(meter);
    }
    return true;
}

/* Needs the lock. Returns the serial of the event at the segment's beginning, if there is one. */
static uint64_t begin_segment(struct plimsoll_meter *meter, CUstream handle, uint64_t now_ns) {
    struct plimsoll_stream *stream = plimsoll_stream_for(meter, plimsoll_stream_key(handle));
    if (stream && stream->is_open)
        return 0;
    bool is_blocked = stream && stream->is_blocked, has_room = plimsoll_events_have_room(meter);
    if (is_blocked && !has_room)
        return 0; /* the segment begins with a later launch */
    if (stream) {
        stream->is_open = stream->is_fresh = true;
        stream->has_begin = is_blocked;
        stream->is_blocked = false;
    }
    if (!is_blocked)
        plimsoll_burst_launched(meter->gpu, now_ns);
    return is_blocked ? plimsoll_record_begin(meter, handle, true) : 0;
}

/* Needs the lock. */
static void count_in(struct plimsoll_measurement *measurement, struct plimsoll_meter *meter,
                     CUstream handle) {
    meter->launching++;
    measurement->meter = meter;
    measurement->life = meter->life;
    const struct plimsoll_stream *stream = plimsoll_stream_in(meter, plimsoll_stream_key(handle));
    bool is_blocked = stream && stream->is_blocked;
    measurement->begun = measurement->is_sample ? plimsoll_record_begin(meter, handle, is_blocked)
                                                : begin_segment(meter, handle, plimsoll_now_ns());
}

void plimsoll_measure(struct plimsoll_measurement *measurement, struct plimsoll_meter *meter,
                      uint64_t context, CUstream stream) {
    pthread_mutex_lock(&SHARES->lock);
    meter->users--;
    if (measurement->is_sample)
        plimsoll_bursts_meter(false, plimsoll_now_ns());
    bool has_room = !measurement->is_sample || plimsoll_events_have_room(meter);
    if (meter->context == context && !meter->is_broken && has_room)
        count_in(measurement, meter, stream);
    pthread_mutex_unlock(&SHARES->lock);
    measurement->entered_ns = plimsoll_now_ns();
}

/* --- the second half -------------------------------------------------------------------------------------
 */

/* The driver gives work to the GPU towards the end of its call. A call that takes longer may load code first,
 * or wait for the work itself. */
static uint64_t handed_over_ns(const struct plimsoll_measurement *measurement, uint64_t left_ns) {
    return plimsoll_sooner(left_ns, measurement->entered_ns + CALL_NS);
}

/* If launches come faster than they end, an event follows now and then. Otherwise an event follows each
 * launch, because the GPU may fall idle behind any of them. */
static bool is_event_due(const struct plimsoll_meter *meter, const struct plimsoll_stream *stream,
                         uint64_t entered_ns) {
    const struct plimsoll_pace *pace = &meter->pace;
    uint64_t gap_ns = entered_ns > pace->entered_ns ? entered_ns - pace->entered_ns : 0;
    return stream->is_fresh || stream->tail >= TAIL_MOST || gap_ns >= pace->average_ns ||
           stream->tail * pace->average_ns >= TAIL_MOST_NS;
}

/* Needs the lock. */
static void count_launch(struct plimsoll_meter *meter, const struct plimsoll_measurement *measurement,
                         CUstream handle, uint64_t left_ns) {
    struct plimsoll_stream *stream = plimsoll_stream_in(meter, plimsoll_stream_key(handle));
    bool is_followed = !measurement->is_sample && stream && stream->is_open;
    if (is_followed && stream->tail++ == 0)
        stream->entered_ns = handed_over_ns(measurement, left_ns);
    bool is_due = !is_followed || is_event_due(meter, stream, measurement->entered_ns);
    meter->pace.entered_ns = measurement->entered_ns;
    if (!is_due || meter->events.count == PLIMSOLL_EVENTS)
        ; /* a later event follows this launch */
    else if (is_followed)
        plimsoll_record_behind(meter, handle);
    else
        plimsoll_record_sample(meter, handle, measurement->is_sample ? SHARES->samples.passes_each : 1);
    meter->pace.entered_ns = left_ns;
}

static void date_begin(struct plimsoll_meter *meter, const struct plimsoll_measurement *measurement,
                       uint64_t left_ns) {
    for (unsigned i = 0; i < meter->events.count; i++)
        if (meter->events.at[i].serial == measurement->begun)
            meter->events.at[i].entered_ns = handed_over_ns(measurement, left_ns);
}

/* Needs the lock. The context may have ended during a call of the driver. */
static void count_out(const struct plimsoll_measurement *measurement, CUstream stream, CUresult result) {
    struct plimsoll_meter *meter = measurement->meter;
    uint64_t left_ns = plimsoll_now_ns();
    if (meter->life != measurement->life)
        return;
    if (measurement->begun)
        date_begin(meter, measurement, left_ns);
    if (result == CUDA_SUCCESS)
        count_launch(meter, measurement, stream, left_ns);
    if (meter->life != measurement->life)
        return;
    meter->launching--;
    if (result != CUDA_SUCCESS)
        plimsoll_burst_settle(meter->gpu, left_ns);
    if (!measurement->is_sample)
        plimsoll_burst_tell_queue(meter->gpu);
}

void plimsoll_measured_launch(const struct plimsoll_measurement *measurement, CUstream stream,
                              CUresult result) {
    int saved = errno;
    pthread_mutex_lock(&SHARES->lock);
    count_out(measurement, stream, result);
    pthread_mutex_unlock(&SHARES->lock);
    if (!measurement->is_sample)
        plimsoll_poller_wake();
    errno = saved;
}
