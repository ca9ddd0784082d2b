/* No thread holds the lock during a query to the driver. The events to query are copied before, and the
 * results are used after, unless the context ended in between. */
#include "clock.h"
#include "driver/driver.h"
#include "share/gate.h"
#include "share/work/meters.h"

#define SHARES (&plimsoll.shares)

/* A query takes no longer on a thread that keeps running. */
#define QUERY_MOST_NS 5000

/* --- queries ---------------------------------------------------------------------------------------------
 */

static bool is_behind(const struct plimsoll_meter *meter, unsigned index) {
    for (unsigned i = 0; i < index; i++)
        if (!meter->poll.is_reached[i] && meter->events.at[i].stream == meter->events.at[index].stream)
            return true;
    return false;
}

static void date(struct plimsoll_poll *poll, unsigned index, CUevent event) {
    float passed_ms = 0;
    if (!poll->anchor)
        poll->anchor = event;
    if (poll->anchor != event && CALLED(cuEventElapsedTime)(&passed_ms, poll->anchor, event) != CUDA_SUCCESS)
        poll->is_failed = true;
    poll->since_anchor_ns[index] = (int64_t)((double)passed_ms * 1e6);
}

/* Most polls come right after the program waited for the first event, which was reached before the query. A
 * thread that was stopped or preempted during the query proves no more than the time after it. */
static uint64_t reached_by_ns(uint64_t before_ns, uint64_t after_ns) {
    return after_ns - before_ns < QUERY_MOST_NS ? before_ns : after_ns;
}

static void query_each(struct plimsoll_meter *meter) {
    struct plimsoll_poll *poll = &meter->poll;
    for (unsigned i = 0; i < poll->count && !poll->is_failed; i++) {
        poll->is_reached[i] = false;
        if (is_behind(meter, i))
            continue;
        uint64_t before_ns = i == 0 ? poll->begun_ns : plimsoll_now_ns();
        CUresult result = REAL(cuEventQuery)(meter->events.at[i].handle);
        poll->reached_by_ns[i] = reached_by_ns(before_ns, plimsoll_now_ns());
        poll->is_reached[i] = result == CUDA_SUCCESS;
        poll->is_failed = result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
        if (poll->is_reached[i])
            date(poll, i, meter->events.at[i].handle);
    }
    poll->seen_ns = plimsoll_now_ns();
}

/* In relaxed mode: otherwise a query would break the capture of another thread. */
static void query(struct plimsoll_meter *meter, uint64_t context) {
    CUcontext popped, of = (CUcontext)(uintptr_t)context; // NOLINT
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (CALLED(cuCtxPushCurrent_v2)(of) != CUDA_SUCCESS) {
        meter->poll.is_failed = true;
        return;
    }
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    query_each(meter);
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    CALLED(cuCtxPopCurrent_v2)(&popped);
}

/* Needs the lock. */
static bool begin_poll(struct plimsoll_meter *meter) {
    if (!meter->context || meter->poll.is_running || meter->events.count == 0)
        return false;
    meter->poll.is_running = true;
    meter->users++;
    meter->poll.count = meter->events.count;
    meter->poll.anchor = meter->anchor.event;
    meter->poll.is_failed = false;
    meter->poll.begun_ns = plimsoll_now_ns();
    return true;
}

/* An error in a query means the end of the context: its kernels failed for good, or the driver shuts down. */
static void give_up(struct plimsoll_meter *meter) {
    for (unsigned i = 0; i < meter->events.count; i++)
        if (meter->events.at[i].handle != meter->anchor.event)
            plimsoll_event_spare(meter, meter->events.at[i].handle);
    meter->events.count = meter->streams.count = 0;
    meter->is_broken = true;
    plimsoll_burst_settle(meter->gpu, plimsoll_now_ns());
}

static void end_poll(struct plimsoll_meter *meter, uint64_t life) {
    meter->users--;
    meter->poll.is_running = false;
    if (meter->life != life)
        return;
    if (meter->poll.is_failed)
        give_up(meter);
    else
        plimsoll_take_in(meter);
    plimsoll_burst_presume(meter->gpu, meter->poll.seen_ns);
    plimsoll_burst_tell_queue(meter->gpu);
}

/* --- tails -----------------------------------------------------------------------------------------------
 */

/* A tail without an event counts as done this long after its expected end. */
#define TAIL_NS 1000000

static uint64_t tail_due_ns(const struct plimsoll_meter *meter) {
    uint64_t from_ns = plimsoll_later(meter->pace.reached_ns, meter->pace.entered_ns);
    return from_ns + plimsoll_outstanding(meter) * meter->pace.average_ns * plimsoll_gate_sharers();
}

static bool has_tail(const struct plimsoll_meter *meter) {
    for (unsigned i = 0; i < meter->streams.count; i++)
        if (meter->streams.at[i].tail > 0 && !plimsoll_has_event(meter, meter->streams.at[i].key))
            return true;
    return false;
}

/* Where the driver records no event behind a tail, the tail counts as done at its expected end. */
static void drop_tails(struct plimsoll_meter *meter, uint64_t due_ns) {
    for (unsigned i = 0; i < meter->streams.count; i++)
        if (!plimsoll_has_event(meter, meter->streams.at[i].key))
            meter->streams.at[i].tail = 0;
    plimsoll_burst_ended(meter->gpu, due_ns);
    plimsoll_close_segments(meter);
    plimsoll_burst_settle(meter->gpu, due_ns);
}

/* An event follows the tails of a meter, if the program waited for work (`is_end_likely`) or the tails should
 * be done. Needs the lock, and releases it during the driver's call. */
static void see_to_tails(struct plimsoll_meter *meter, bool is_end_likely) {
    uint64_t now_ns = plimsoll_now_ns(), due_ns = tail_due_ns(meter);
    if (!meter->context || meter->is_broken || meter->launching > 0 || !has_tail(meter))
        return;
    if (is_end_likely || now_ns > due_ns)
        plimsoll_record_context(meter);
    if (meter->context && now_ns > due_ns + TAIL_NS && meter->launching == 0 && has_tail(meter))
        drop_tails(meter, due_ns);
}

/* --- polls -----------------------------------------------------------------------------------------------
 */

void plimsoll_poll_meter(struct plimsoll_meter *meter) {
    pthread_mutex_lock(&SHARES->lock);
    uint64_t life = meter->life, context = meter->context;
    bool is_begun = begin_poll(meter);
    pthread_mutex_unlock(&SHARES->lock);
    if (!is_begun)
        return;
    query(meter, context);
    pthread_mutex_lock(&SHARES->lock);
    end_poll(meter, life);
    pthread_mutex_unlock(&SHARES->lock);
}

/* Meters are never freed. So a thread may walk the list without the lock, from a head that it read under the
 * lock. */
static struct plimsoll_meter *all_meters(void) {
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *first = SHARES->meters;
    pthread_mutex_unlock(&SHARES->lock);
    return first;
}

void plimsoll_poll(bool is_end_likely) {
    uint64_t now_ns = plimsoll_now_ns();
    for (struct plimsoll_meter *meter = all_meters(); meter; meter = meter->next) {
        plimsoll_poll_meter(meter);
        pthread_mutex_lock(&SHARES->lock);
        see_to_tails(meter, is_end_likely);
        plimsoll_burst_tell_queue(meter->gpu);
        pthread_mutex_unlock(&SHARES->lock);
    }
    plimsoll_bursts_tell_poll(now_ns); /* after the polls: otherwise the stale words of a process that was
                                          stopped would count once more */
}
