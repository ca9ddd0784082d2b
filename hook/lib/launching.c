#include "launching.h"

#include <errno.h>

#include "attach.h"
#include "bursts.h"
#include "captures.h"
#include "charge.h"
#include "clock.h"
#include "gate.h"
#include "keeper.h"
#include "looks.h"
#include "marks.h"
#include "standing.h"

#define SHARES (&plimsoll.shares)

/* What no mark follows yet is only estimated; so much of it may be. */
#define UNMARKED_NS 300000
/* Behind an open gate: launches between two samples at most, and the parts of what may be queued in which
 * samples come while launches are long. */
#define PASSES_MOST 255u
#define SAMPLE_PARTS 4
/* So many may be queued while nothing is known of them. */
#define FIRST_LAUNCHES 16
#define NAP_NS 100000
#define LONGEST_NAP_NS 10000000
/* How often a program that polls has its marks looked at. */
#define QUERY_NS 100000
#define CALL_NS 2000

/* --- the first half --------------------------------------------------------------------------------------
 */

/* Where the latest mark should have been reached and nothing follows it, the segment may have ended there. */
static bool may_be_idle(const struct plimsoll_meter *meter, uint64_t now_ns) {
    return meter->mark_count > 0 && meter->launching == 0 &&
           now_ns > meter->entered_ns + plimsoll_outstanding(meter) * meter->average_ns;
}

/* Under the lock. Returns the serial of the mark at the segment's beginning, where it has one. */
static uint64_t begin_segment(struct plimsoll_meter *meter, CUstream handle, uint64_t now_ns) {
    struct plimsoll_stream *stream = plimsoll_stream_for(meter, plimsoll_stream_key(handle));
    if (stream && stream->is_open)
        return 0;
    bool is_blocked = stream && stream->is_blocked, has_room = plimsoll_marks_have_room(meter);
    if (is_blocked && !has_room)
        return 0; /* its segment begins with a later launch */
    if (stream) {
        stream->is_open = stream->is_fresh = true;
        stream->has_begin = is_blocked;
        stream->is_blocked = false;
    }
    if (!is_blocked)
        plimsoll_burst_launched(meter->gpu, now_ns);
    return is_blocked ? plimsoll_mark_begin(meter, handle, true) : 0;
}

/* Under the lock. */
static void count_in(struct plimsoll_launch *launch, struct plimsoll_meter *meter) {
    meter->launching++;
    launch->meter = meter;
    launch->life = meter->life;
    const struct plimsoll_stream *stream = plimsoll_stream_in(meter, plimsoll_stream_key(launch->stream));
    bool is_blocked = stream && stream->is_blocked;
    launch->begun = launch->is_sample ? plimsoll_mark_begin(meter, launch->stream, is_blocked)
                                      : begin_segment(meter, launch->stream, plimsoll_now_ns());
}

/* Has the meter's marks looked at where a stream may have run dry, so that idleness is not taken for
 * execution. */
static struct plimsoll_meter *current_meter(uint64_t context, int gpu) {
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = plimsoll_meter_of(context, gpu);
    bool is_look_due = meter && !meter->is_broken && may_be_idle(meter, plimsoll_now_ns());
    if (meter)
        meter->users++;
    pthread_mutex_unlock(&SHARES->lock);
    if (is_look_due)
        plimsoll_look_at(meter);
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

/* Under the lock. */
static uint64_t sampled_ns(const struct plimsoll_meter *meter, uint64_t now_ns) {
    uint64_t launches = 0, each_ns = plimsoll_each_ns(meter, now_ns);
    for (unsigned i = 0; i < meter->mark_count; i++)
        launches += meter->marks[i].stands_for;
    uint64_t queued_ns = launches * each_ns, ran_ns = now_ns - meter->reached_ns;
    if (meter->average_ns == 0 && launches >= FIRST_LAUNCHES)
        return UINT64_MAX; /* nothing is known of them yet */
    return queued_ns > ran_ns ? queued_ns - ran_ns : 0;
}

/* Under the lock. The next sample: soon while launches are long, or nothing is known of them. */
static void plan_sample(const struct plimsoll_meter *meter, uint64_t now_ns) {
    uint64_t each_ns = plimsoll_each_ns(meter, now_ns), passes = 1;
    if (meter->average_ns)
        passes = plimsoll_sooner(plimsoll_gate_alone_ns() / SAMPLE_PARTS / each_ns | 1, PASSES_MOST);
    __atomic_store_n(&SHARES->passes_each, (uint32_t)passes, __ATOMIC_RELAXED);
    __atomic_store_n(&SHARES->passes_left, (uint32_t)passes - 1, __ATOMIC_RELAXED);
}

/* How much more is queued than may be. */
static uint64_t excess_ns(struct plimsoll_meter *meter) {
    plimsoll_look_at(meter);
    uint64_t now_ns = plimsoll_now_ns(), alone_ns = plimsoll_gate_alone_ns();
    pthread_mutex_lock(&SHARES->lock);
    uint64_t left_ns = sampled_ns(meter, now_ns);
    plan_sample(meter, now_ns);
    pthread_mutex_unlock(&SHARES->lock);
    return left_ns > alone_ns ? left_ns - alone_ns : 0;
}

/* Twice the time that the excess should take, within two launches: those in the queue may wait for this one.
 */
static uint64_t patience_ns(const struct plimsoll_meter *meter, uint64_t excess) {
    pthread_mutex_lock(&SHARES->lock);
    uint64_t most_ns = plimsoll_later(2 * meter->average_ns, plimsoll_gate_alone_ns());
    pthread_mutex_unlock(&SHARES->lock);
    return excess < most_ns ? plimsoll_sooner(2 * excess, most_ns) : most_ns;
}

/* Waits while too much is queued, so that a neighbour who comes soon has its part. */
static void stand_alone(struct plimsoll_meter *meter, uint32_t word) {
    uint64_t excess = excess_ns(meter), begun_ns = plimsoll_now_ns();
    uint64_t until_ns = begun_ns + patience_ns(meter, excess);
    while (excess > 0 && plimsoll_gate_word() == word && plimsoll_now_ns() < until_ns) {
        plimsoll_gate_sleep(word, plimsoll_sooner(plimsoll_later(excess, NAP_NS), LONGEST_NAP_NS));
        excess = excess_ns(meter);
    }
}

static void sample(struct plimsoll_launch *launch, uint64_t context, int gpu, uint32_t word) {
    struct plimsoll_meter *meter = current_meter(context, gpu);
    if (!meter)
        return;
    stand_alone(meter, word);
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

/* A program may have come by its context without cuInit's hook: then it attaches here. Where no gate holds
 * it, it comes back after as many launches as can be counted. */
static bool is_under_gate(void) {
    if (!plimsoll_current_context())
        return false;
    if (plimsoll_attach() == STANDING_ATTACHED && plimsoll_has_gate())
        return true;
    __atomic_store_n(&SHARES->passes_left, UINT32_MAX, __ATOMIC_RELAXED);
    return false;
}

/* While the broker is lost every launch comes here, whatever its gate's word says. */
static bool is_sample_due(void) {
    uint32_t left = __atomic_load_n(&SHARES->passes_left, __ATOMIC_RELAXED);
    if (left > 0)
        __atomic_store_n(&SHARES->passes_left, left - 1, __ATOMIC_RELAXED);
    return left == 0;
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
        if (is_sample_due())
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

/* The GPU is given what a call of the driver gives it towards the end of that call. A call that takes longer
 * may load code first, or wait for the work itself. */
static uint64_t handed_over_ns(const struct plimsoll_launch *launch, uint64_t left_ns) {
    return plimsoll_sooner(left_ns, launch->entered_ns + CALL_NS);
}

/* Launches that come faster than they are done are followed by a mark now and then, others one by one: the
 * GPU may fall idle behind any of those. */
static bool is_mark_due(const struct plimsoll_meter *meter, const struct plimsoll_stream *stream,
                        uint64_t entered_ns) {
    uint64_t gap_ns = entered_ns > meter->entered_ns ? entered_ns - meter->entered_ns : 0;
    return stream->is_fresh || stream->tail >= FIRST_LAUNCHES || gap_ns >= meter->average_ns ||
           stream->tail * meter->average_ns >= UNMARKED_NS;
}

/* Under the lock. */
static void count_launch(struct plimsoll_meter *meter, const struct plimsoll_launch *launch,
                         uint64_t left_ns) {
    struct plimsoll_stream *stream = plimsoll_stream_in(meter, plimsoll_stream_key(launch->stream));
    bool is_followed = !launch->is_sample && stream && stream->is_open;
    if (is_followed && stream->tail++ == 0)
        stream->entered_ns = handed_over_ns(launch, left_ns);
    bool is_due = !is_followed || is_mark_due(meter, stream, launch->entered_ns);
    meter->entered_ns = launch->entered_ns;
    if (!is_due || meter->mark_count == PLIMSOLL_MARKS)
        ; /* a later mark follows it */
    else if (is_followed)
        plimsoll_mark_behind(meter, launch->stream, 0);
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
            plimsoll_keeper_stir();
        errno = saved;
    }
    if (launch->is_held)
        plimsoll_release_thread(launch->cancelling);
    plimsoll_depth--;
    return result;
}

/* --- waiting for what was launched, and blocking it ------------------------------------------------------
 */

/* What a thread of the program does for us, unnoticed. */
struct errand {
    int saved_errno;
    int cancelling;
};

static struct errand begin_errand(void) {
    plimsoll_depth++;
    return (struct errand){.saved_errno = errno, .cancelling = plimsoll_hold_thread()};
}

static void end_errand(const struct errand *errand) {
    plimsoll_release_thread(errand->cancelling);
    plimsoll_depth--;
    errno = errand->saved_errno;
}

static bool is_metered(void) {
    return plimsoll_depth == 0 && __atomic_load_n(&SHARES->is_metering, __ATOMIC_RELAXED);
}

/* Under the lock. Calls of the program with a stream of another context, or a broken one, are its own affair.
 */
static struct plimsoll_meter *metered(uint64_t context, int gpu) {
    struct plimsoll_meter *meter = context && gpu >= 0 ? plimsoll_meter_of(context, gpu) : NULL;
    return meter && !meter->is_broken ? meter : NULL;
}

/* In whatever context. */
static bool has_tail(CUstream handle) {
    uint64_t key = plimsoll_stream_key(handle);
    bool is_found = false;
    pthread_mutex_lock(&SHARES->lock);
    for (struct plimsoll_meter *meter = SHARES->meters; meter && !is_found; meter = meter->next) {
        const struct plimsoll_stream *stream = meter->context ? plimsoll_stream_in(meter, key) : NULL;
        is_found = stream && stream->tail > 0;
    }
    pthread_mutex_unlock(&SHARES->lock);
    return is_found;
}

static void mark_tail(CUstream handle) {
    uint64_t context;
    int gpu = plimsoll_gpu_of_stream(handle, &context);
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = metered(context, gpu);
    struct plimsoll_stream *stream = meter ? plimsoll_stream_in(meter, plimsoll_stream_key(handle)) : NULL;
    if (stream && stream->tail > 0 && meter->mark_count < PLIMSOLL_MARKS)
        plimsoll_mark_behind(meter, handle, 0);
    pthread_mutex_unlock(&SHARES->lock);
}

/* An event in the legacy stream would break the captures of all streams that keep order with it, and the
 * program may wait for something while one of them is under way. A thread's own default stream is made by the
 * first question after it. */
void plimsoll_see_to_tail(CUstream stream) {
    bool is_legacy = stream == NULL || stream == CU_STREAM_LEGACY;
    if (!has_tail(stream) || plimsoll_is_capturing(stream) || (is_legacy && !plimsoll_begin_look()))
        return;
    mark_tail(stream);
    if (is_legacy)
        plimsoll_end_look();
}

void plimsoll_before_sync(CUstream stream) {
    if (!is_metered())
        return;
    struct errand errand = begin_errand();
    plimsoll_see_to_tail(stream);
    end_errand(&errand);
}

/* Some of the program's own streams may be gone; the context is not, nor are the default ones. */
void plimsoll_before_sync_context(void) {
    if (!is_metered())
        return;
    struct errand errand = begin_errand();
    plimsoll_see_to_tail(NULL);
    plimsoll_see_to_tail(CU_STREAM_PER_THREAD);
    uint64_t context = plimsoll_current_context();
    int gpu = plimsoll_gpu_of_current_context(context);
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = metered(context, gpu);
    for (unsigned i = 0; meter && i < meter->stream_count; i++)
        if (meter->streams[i].tail > 0) {
            plimsoll_mark_context(meter);
            break;
        }
    pthread_mutex_unlock(&SHARES->lock);
    end_errand(&errand);
}

void plimsoll_after_sync(void) {
    if (!is_metered())
        return;
    struct errand errand = begin_errand();
    plimsoll_look(true);
    end_errand(&errand);
}

void plimsoll_after_query(void) {
    if (plimsoll_now_ns() > __atomic_load_n(&SHARES->looked_ns, __ATOMIC_RELAXED) + QUERY_NS)
        plimsoll_after_sync();
}

static void block(CUstream handle) {
    uint64_t context;
    int gpu = plimsoll_gpu_of_stream(handle, &context);
    plimsoll_see_to_tail(handle);
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = metered(context, gpu);
    struct plimsoll_stream *stream = meter ? plimsoll_stream_for(meter, plimsoll_stream_key(handle)) : NULL;
    if (stream) {
        stream->is_open = false;
        stream->is_blocked = true;
    }
    pthread_mutex_unlock(&SHARES->lock);
}

void plimsoll_before_block(CUstream stream) {
    if (plimsoll_depth > 0 || !plimsoll_is_attached() || plimsoll_is_capturing(stream))
        return;
    struct errand errand = begin_errand();
    block(stream);
    end_errand(&errand);
}
