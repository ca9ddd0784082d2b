#include "share/launching.h"

#include <errno.h>

#include "broker/attach.h"
#include "clock.h"
#include "driver/gpus.h"
#include "memory/current.h"
#include "share/bursts.h"
#include "share/estimates.h"
#include "share/gate.h"
#include "share/keeper.h"
#include "share/marks.h"
#include "share/meters.h"
#include "share/polls.h"
#include "share/sampling.h"
#include "share/standing.h"

#define SHARES (&plimsoll.shares)

/* Work that no mark follows yet is only estimated. It may come to this much. */
#define UNMARKED_NS 300000
/* A mark follows after this many launches, however short they are. */
#define UNMARKED_MOST 16
/* The usual length of the driver's call. */
#define CALL_NS 2000

/* --- the first half --------------------------------------------------------------------------------------
 */

/* If the latest mark should have been reached by now and nothing follows it, the segment may have ended
 * there. */
static bool may_be_idle(const struct plimsoll_meter *meter, uint64_t now_ns) {
    return meter->mark_count > 0 && meter->launching == 0 &&
           now_ns > meter->entered_ns + plimsoll_outstanding(meter) * meter->average_ns;
}

/* Needs the lock. Returns the serial of the mark at the segment's beginning, if there is one. */
static uint64_t begin_segment(struct plimsoll_meter *meter, CUstream handle, uint64_t now_ns) {
    struct plimsoll_stream *stream = plimsoll_stream_for(meter, plimsoll_stream_key(handle));
    if (stream && stream->is_open)
        return 0;
    bool is_blocked = stream && stream->is_blocked, has_room = plimsoll_marks_have_room(meter);
    if (is_blocked && !has_room)
        return 0; /* the segment begins with a later launch */
    if (stream) {
        stream->is_open = stream->is_fresh = true;
        stream->has_begin = is_blocked;
        stream->is_blocked = false;
    }
    if (!is_blocked)
        plimsoll_burst_launched(meter->gpu, now_ns);
    return is_blocked ? plimsoll_mark_begin(meter, handle, true) : 0;
}

/* Needs the lock. */
static void count_in(struct plimsoll_launch *launch, struct plimsoll_meter *meter) {
    meter->launching++;
    launch->meter = meter;
    launch->life = meter->life;
    const struct plimsoll_stream *stream = plimsoll_stream_in(meter, plimsoll_stream_key(launch->stream));
    bool is_blocked = stream && stream->is_blocked;
    launch->begun = launch->is_sample ? plimsoll_mark_begin(meter, launch->stream, is_blocked)
                                      : begin_segment(meter, launch->stream, plimsoll_now_ns());
}

/* Polls the meter's marks if a stream may have run dry. Otherwise idle time would count as execution. */
static struct plimsoll_meter *current_meter(uint64_t context, int gpu) {
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

static void enter_meter(struct plimsoll_launch *launch, uint64_t context, int gpu) {
    struct plimsoll_meter *meter = current_meter(context, gpu);
    if (!meter)
        return;
    pthread_mutex_lock(&SHARES->lock);
    meter->users--;
    if (meter->context == context && !meter->is_broken)
        count_in(launch, meter);
    pthread_mutex_unlock(&SHARES->lock);
}

/* --- behind an open gate ---------------------------------------------------------------------------------
 */

static void sample(struct plimsoll_launch *launch, uint64_t context, int gpu, uint32_t word) {
    struct plimsoll_meter *meter = current_meter(context, gpu);
    if (!meter)
        return;
    plimsoll_sample_await_room(meter, word);
    pthread_mutex_lock(&SHARES->lock);
    meter->users--;
    plimsoll_bursts_meter(false, plimsoll_now_ns());
    launch->is_sample = true;
    if (meter->context == context && !meter->is_broken && plimsoll_marks_have_room(meter))
        count_in(launch, meter);
    pthread_mutex_unlock(&SHARES->lock);
}

/* --- both ------------------------------------------------------------------------------------------------
 */

/* A program may have got its context without the hook of cuInit. Then the process attaches here. If no gate
 * holds the process, the next check comes after as many launches as can be counted. */
static bool is_under_gate(void) {
    if (!plimsoll_current_context())
        return false;
    if (plimsoll_attach() == ATTACHMENT_FULL && plimsoll_has_gate())
        return true;
    __atomic_store_n(&SHARES->passes_left, UINT32_MAX, __ATOMIC_RELAXED);
    return false;
}

static void enter(struct plimsoll_launch *launch) {
    uint64_t context;
    if (!is_under_gate())
        return;
    int gpu = plimsoll_gpu_of_stream(launch->stream, &context);
    if (context == 0 || gpu < 0)
        return;
    launch->is_held = true;
    launch->cancelling = plimsoll_hold_thread();
    plimsoll_keeper_need();
    uint32_t word = plimsoll_gate_word();
    if (plimsoll_gate_state(word, plimsoll_now_ns()) == PLIMSOLL_GATE_OPEN) {
        if (plimsoll_sample_is_due())
            sample(launch, context, gpu, word);
        return;
    }
    if (plimsoll_stand(gpu, launch->stream) &&
        plimsoll_gate_state(word, plimsoll_now_ns()) != PLIMSOLL_GATE_OPEN)
        enter_meter(launch, context, gpu);
}

void plimsoll_enter_launch(struct plimsoll_launch *launch, CUstream stream) {
    int saved = errno;
    *launch = (struct plimsoll_launch){.stream = stream};
    if (plimsoll_depth++ == 0 && !plimsoll_is_capturing(stream))
        enter(launch);
    launch->entered_ns = plimsoll_now_ns();
    errno = saved;
}

/* --- the second half -------------------------------------------------------------------------------------
 */

/* The driver gives work to the GPU towards the end of its call. A call that takes longer may load code first,
 * or wait for the work itself. */
static uint64_t handed_over_ns(const struct plimsoll_launch *launch, uint64_t left_ns) {
    return plimsoll_sooner(left_ns, launch->entered_ns + CALL_NS);
}

/* If launches come faster than they end, a mark follows now and then. Otherwise a mark follows each launch,
 * because the GPU may fall idle behind any of them. */
static bool is_mark_due(const struct plimsoll_meter *meter, const struct plimsoll_stream *stream,
                        uint64_t entered_ns) {
    uint64_t gap_ns = entered_ns > meter->entered_ns ? entered_ns - meter->entered_ns : 0;
    return stream->is_fresh || stream->tail >= UNMARKED_MOST || gap_ns >= meter->average_ns ||
           stream->tail * meter->average_ns >= UNMARKED_NS;
}

/* Needs the lock. */
static void count_launch(struct plimsoll_meter *meter, const struct plimsoll_launch *launch,
                         uint64_t left_ns) {
    struct plimsoll_stream *stream = plimsoll_stream_in(meter, plimsoll_stream_key(launch->stream));
    bool is_followed = !launch->is_sample && stream && stream->is_open;
    if (is_followed && stream->tail++ == 0)
        stream->entered_ns = handed_over_ns(launch, left_ns);
    bool is_due = !is_followed || is_mark_due(meter, stream, launch->entered_ns);
    meter->entered_ns = launch->entered_ns;
    if (!is_due || meter->mark_count == PLIMSOLL_MARKS)
        ; /* a later mark follows this launch */
    else if (is_followed)
        plimsoll_mark_behind(meter, launch->stream);
    else
        plimsoll_mark_sample(meter, launch->stream, launch->is_sample ? SHARES->passes_each : 1);
    meter->entered_ns = left_ns;
}

static void date_begin(struct plimsoll_meter *meter, const struct plimsoll_launch *launch, uint64_t left_ns) {
    for (unsigned i = 0; i < meter->mark_count; i++)
        if (meter->marks[i].serial == launch->begun)
            meter->marks[i].entered_ns = handed_over_ns(launch, left_ns);
}

static void count_out(const struct plimsoll_launch *launch, CUresult result) {
    struct plimsoll_meter *meter = launch->meter;
    uint64_t left_ns = plimsoll_now_ns();
    if (meter->life != launch->life)
        return;
    if (launch->begun)
        date_begin(meter, launch, left_ns);
    if (result == CUDA_SUCCESS)
        count_launch(meter, launch, left_ns);
    if (meter->life != launch->life)
        return;
    meter->launching--;
    if (result != CUDA_SUCCESS)
        plimsoll_burst_settle(meter->gpu, left_ns);
    if (!launch->is_sample)
        plimsoll_burst_tell_queue(meter->gpu);
}

CUresult plimsoll_leave_launch(struct plimsoll_launch *launch, CUresult result) {
    if (launch->meter) {
        int saved = errno;
        pthread_mutex_lock(&SHARES->lock);
        count_out(launch, result);
        pthread_mutex_unlock(&SHARES->lock);
        if (!launch->is_sample)
            plimsoll_keeper_wake();
        errno = saved;
    }
    if (launch->is_held)
        plimsoll_release_thread(launch->cancelling);
    plimsoll_depth--;
    return result;
}
