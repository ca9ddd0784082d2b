/* No thread holds the lock during a query to the driver. The marks to query are copied before, and the
 * results are used after, unless the context ended in between. */
#include "share/polls.h"

#include "clock.h"
#include "driver/driver.h"
#include "share/bursts.h"
#include "share/dating.h"
#include "share/meters.h"
#include "share/segments.h"

#define SHARES (&plimsoll.shares)

/* A query takes no longer on a thread that keeps running. */
#define QUERY_MOST_NS 5000

/* --- asking ----------------------------------------------------------------------------------------------
 */

static bool is_behind(const struct plimsoll_meter *meter, unsigned index) {
    for (unsigned i = 0; i < index; i++)
        if (!meter->poll.is_reached[i] && meter->marks[i].stream == meter->marks[index].stream)
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

/* Most polls come right after the program waited for the first mark, which was reached before the query. A
 * thread that was stopped or preempted during the query proves no more than the time after it. */
static uint64_t reached_by_ns(uint64_t before_ns, uint64_t after_ns) {
    return after_ns - before_ns < QUERY_MOST_NS ? before_ns : after_ns;
}

static void ask_each(struct plimsoll_meter *meter) {
    struct plimsoll_poll *poll = &meter->poll;
    for (unsigned i = 0; i < poll->count && !poll->is_failed; i++) {
        poll->is_reached[i] = false;
        if (is_behind(meter, i))
            continue;
        uint64_t before_ns = i == 0 ? poll->begun_ns : plimsoll_now_ns();
        CUresult result = REAL(cuEventQuery)(meter->marks[i].event);
        poll->reached_by_ns[i] = reached_by_ns(before_ns, plimsoll_now_ns());
        poll->is_reached[i] = result == CUDA_SUCCESS;
        poll->is_failed = result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
        if (poll->is_reached[i])
            date(poll, i, meter->marks[i].event);
    }
    poll->seen_ns = plimsoll_now_ns();
}

/* In relaxed mode: otherwise a query would break the capture of another thread. */
static void ask(struct plimsoll_meter *meter, uint64_t context) {
    CUcontext popped, of = (CUcontext)(uintptr_t)context; // NOLINT
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (CALLED(cuCtxPushCurrent_v2)(of) != CUDA_SUCCESS) {
        meter->poll.is_failed = true;
        return;
    }
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    ask_each(meter);
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    CALLED(cuCtxPopCurrent_v2)(&popped);
}

/* Needs the lock. */
static bool begin_poll(struct plimsoll_meter *meter) {
    if (!meter->context || meter->is_polled || meter->mark_count == 0)
        return false;
    meter->is_polled = true;
    meter->users++;
    meter->poll.count = meter->mark_count;
    meter->poll.anchor = meter->anchor;
    meter->poll.is_failed = false;
    meter->poll.begun_ns = plimsoll_now_ns();
    return true;
}

/* An error in a query means the end of the context: its kernels failed for good, or the driver shuts down. */
static void give_up(struct plimsoll_meter *meter) {
    for (unsigned i = 0; i < meter->mark_count; i++)
        if (meter->marks[i].event != meter->anchor)
            plimsoll_spare(meter, meter->marks[i].event);
    meter->mark_count = meter->stream_count = 0;
    meter->is_broken = true;
    plimsoll_burst_settle(meter->gpu, plimsoll_now_ns());
}

static void end_poll(struct plimsoll_meter *meter, uint64_t life) {
    meter->users--;
    meter->is_polled = false;
    if (meter->life != life)
        return;
    if (meter->poll.is_failed)
        give_up(meter);
    else
        plimsoll_take_in(meter);
    plimsoll_burst_presume(meter->gpu, meter->poll.seen_ns);
    plimsoll_burst_tell_queue(meter->gpu);
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
    ask(meter, context);
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
        plimsoll_see_to_tails(meter, is_end_likely);
        plimsoll_burst_tell_queue(meter->gpu);
        pthread_mutex_unlock(&SHARES->lock);
    }
    plimsoll_bursts_tell_poll(now_ns); /* after the polls: otherwise the stale words of a process that was
                                          stopped would count once more */
}
