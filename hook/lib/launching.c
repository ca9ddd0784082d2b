/* The way of a launch past a gate that is not open.
 *
 * Shut: it waits. Metered: it waits until little enough is queued, is counted, and an event of ours follows
 * it, recorded by this very thread: a stream belongs to the program, which may end it at any moment, but not
 * while one of its threads launches there.
 */
#include "launching.h"

#include <errno.h>

#include "bursts.h"
#include "captures.h"
#include "gate.h"
#include "keeper.h"
#include "marks.h"
#include "reports.h"
#include "run_ahead.h"
#include "stalls.h"

#define SHARES (&plimsoll.shares)

/* Work that no event of ours follows yet is only estimated; this much of it may be. */
#define UNMARKED_NS 150000

/* --- what the gate says -----------------------------------------------------------------------------------
 */

/* A green context is metered with its primary one: until CUDA 13 only one thread at a time may have it
 * current, and that is the program's. Events of the primary context serve in its streams. */
static uint64_t context_of(CUstream stream) {
    bool is_default = stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    CUcontext context = NULL;
    if (is_default || !HAS(cuStreamGetCtx) || CALLED(cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS)
        if (CALLED(cuCtxGetCurrent)(&context) != CUDA_SUCCESS)
            return 0;
    return plimsoll_owner_of(context);
}

/* Under the lock. From an opening on, what is queued is not known. */
void plimsoll_gate_note(uint32_t word) {
    bool was_open = (SHARES->seen_word & PLIMSOLL_GATE_STATES) == PLIMSOLL_GATE_OPEN;
    if (was_open && (word & PLIMSOLL_GATE_STATES) != PLIMSOLL_GATE_OPEN)
        SHARES->epoch++;
    if (SHARES->seen_word != word)
        SHARES->seen_ns = plimsoll_now_ns();
    SHARES->seen_word = word;
}

/* --- the first half of a launch ---------------------------------------------------------------------------
 */

/* Where the latest event of ours is done and nothing follows it, the burst had ended there. */
static bool may_be_idle(const struct plimsoll_meter *meter, uint64_t now_ns) {
    return meter->is_under_way && meter->launching == 0 &&
           (meter->tail_count == 0 || now_ns > meter->entered_ns + meter->outstanding * meter->average_ns);
}

/* Under the lock. What the context was given while the gate was open is followed by an event: all of it, or
 * where the driver cannot be asked that, what is in the stream that a launch is for. */
static void follow_unknown(struct plimsoll_meter *meter, CUstream stream) {
    meter->epoch = SHARES->epoch;
    if (!plimsoll_mark_context(meter))
        plimsoll_mark(meter, stream, 0);
}

/* Under the lock. The burst's first event goes ahead of its first launch; where something unknown may be
 * queued ahead of it, the burst is not told by it. Released and taken again meanwhile; the launch is counted
 * as under way, so nobody ends the burst. */
static void begin_burst(struct plimsoll_meter *meter, CUstream stream) {
    uint64_t life = meter->life, at_ns;
    plimsoll_burst_begin(meter, plimsoll_now_ns());
    if (meter->epoch != SHARES->epoch) {
        follow_unknown(meter, stream);
        return;
    }
    CUevent event = plimsoll_record(meter, stream, &at_ns);
    if (meter->life == life) {
        meter->start = event;
        meter->start_ns = at_ns;
    }
}

/* Under the lock. False: the gate's word has changed. A launch that is counted here is seen by the helper
 * that finds the gate shut later: it does not call the context drained before the other half. */
static bool count_in(struct plimsoll_launch *launch, struct plimsoll_meter *meter, uint32_t word) {
    if (plimsoll_gate_word() != word)
        return false;
    plimsoll_gate_note(word);
    if (meter->is_broken)
        return true;
    meter->launching++;
    launch->meter = meter;
    launch->life = meter->life;
    launch->is_first = !meter->is_under_way;
    if (launch->is_first)
        begin_burst(meter, launch->stream);
    else if (meter->epoch != SHARES->epoch)
        follow_unknown(meter, launch->stream);
    return true;
}

static bool enter_metered(struct plimsoll_launch *launch, uint64_t context, uint32_t word) {
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = plimsoll_meter_of(context);
    bool is_metered = meter && !meter->is_broken;
    bool is_idle = is_metered && may_be_idle(meter, plimsoll_now_ns());
    bool is_beside = is_metered && SHARES->under_way > (meter->is_under_way ? 1u : 0u);
    pthread_mutex_unlock(&SHARES->lock);
    if (!is_metered)
        return true;
    if (is_idle && is_beside)
        plimsoll_bursts_look(false);
    else if (is_idle)
        plimsoll_burst_look(meter, false);
    if (!plimsoll_wait_to_queue(meter, word))
        return false;
    pthread_mutex_lock(&SHARES->lock);
    bool is_in = meter->context == context && count_in(launch, meter, word);
    pthread_mutex_unlock(&SHARES->lock);
    return is_in;
}

/* What was given while the gate was open, or to this stream since our last event in it, is followed by one:
 * so the helper sees when it is done. */
static void cover(uint64_t context, CUstream stream, uint32_t word) {
    pthread_mutex_lock(&SHARES->lock);
    plimsoll_gate_note(word);
    struct plimsoll_meter *meter = plimsoll_meter_of(context);
    bool is_known = meter && meter->epoch == SHARES->epoch;
    if (meter && !meter->is_broken && (!is_known || plimsoll_tail_of(meter, plimsoll_stream_key(stream)))) {
        if (!meter->is_under_way)
            plimsoll_burst_begin(meter, plimsoll_now_ns());
        if (is_known)
            plimsoll_mark(meter, stream, 0);
        else
            follow_unknown(meter, stream);
    }
    pthread_mutex_unlock(&SHARES->lock);
}

/* What was drained is so no more. Told before the launch, so that the broker, which may have given up waiting
 * for this process, waits again. And who stands at the gate next wants anew, as reports between say that
 * nobody does. */
static void tell_more(uint32_t word) {
    __atomic_store_n(&SHARES->wanted_word, 0, __ATOMIC_RELEASE);
    if (!__atomic_compare_exchange_n(&SHARES->drained_word, &(uint32_t){word}, 0, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return;
    plimsoll_report(word);
    plimsoll_gate_stir(); /* the keeper rests */
}

/* True: this launch goes through the shut gate, as other work of the container waits for it. */
static bool follow(struct plimsoll_launch *launch, uint64_t context, uint32_t word) {
    if (!plimsoll_may_follow(context))
        return false;
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = plimsoll_meter_of(context);
    bool is_in = meter && !meter->is_under_way && count_in(launch, meter, word);
    pthread_mutex_unlock(&SHARES->lock);
    if (is_in)
        tell_more(word);
    return is_in;
}

/* True: this launch may go now. */
static bool obey(struct plimsoll_launch *launch, uint64_t context) {
    uint32_t word = plimsoll_gate_word(), state = word & PLIMSOLL_GATE_STATES;
    if (state == PLIMSOLL_GATE_OPEN || plimsoll_gate_is_lost())
        return true;
    if (state == PLIMSOLL_GATE_METERED)
        return enter_metered(launch, context, word);
    cover(context, launch->stream, word);
    return follow(launch, context, word) || !plimsoll_gate_wait(word, context);
}

void plimsoll_enter_launch(struct plimsoll_launch *launch, CUstream stream) {
    int saved = errno;
    *launch = (struct plimsoll_launch){.stream = stream};
    uint64_t context = 0;
    if (plimsoll_depth++ == 0 && !plimsoll_is_gate_open() && !plimsoll_is_capturing(stream))
        context = context_of(stream);
    if (context) {
        launch->is_held = true;
        launch->cancelling = plimsoll_hold_thread();
        plimsoll_keeper_need();
        while (!obey(launch, context))
            ;
    }
    launch->entered_ns = plimsoll_now_ns();
    errno = saved;
}

/* --- the second half --------------------------------------------------------------------------------------
 */

/* Launches that come faster than they are done are followed by an event now and then, others one by one: the
 * GPU may fall idle behind any of those. */
static bool is_mark_due(const struct plimsoll_meter *meter, uint64_t entered_ns) {
    uint64_t gap_ns = entered_ns > meter->entered_ns ? entered_ns - meter->entered_ns : 0;
    return meter->average_ns == 0 || gap_ns >= meter->average_ns ||
           plimsoll_tail_sum(meter).launches * meter->average_ns >= UNMARKED_NS;
}

/* Under the lock. */
static void count_launch(struct plimsoll_meter *meter, const struct plimsoll_launch *launch,
                         uint64_t left_ns) {
    bool has_room = meter->mark_count < PLIMSOLL_MARKS;
    struct plimsoll_tail one = {plimsoll_stream_key(launch->stream), 1, launch->entered_ns};
    bool is_in_tail = plimsoll_tail_add(meter, &one);
    bool is_due = !is_in_tail || is_mark_due(meter, launch->entered_ns);
    meter->entered_ns = left_ns;
    meter->launched++;
    meter->outstanding += is_in_tail || has_room;
    if (is_due && has_room)
        plimsoll_mark(meter, launch->stream, !is_in_tail);
}

static void count_out(struct plimsoll_launch *launch, CUresult result, uint64_t left_ns) {
    struct plimsoll_meter *meter = launch->meter;
    if (meter->life != launch->life)
        return;
    if (launch->is_first && meter->start && meter->launched == 0)
        plimsoll_burst_begin_later(meter, plimsoll_handed_over_ns(launch->entered_ns, left_ns), left_ns);
    if (result == CUDA_SUCCESS)
        count_launch(meter, launch, left_ns);
    if (meter->life != launch->life)
        return;
    meter->launching--;
    if (result != CUDA_SUCCESS)
        plimsoll_burst_settle(meter, left_ns);
}

CUresult plimsoll_leave_launch(struct plimsoll_launch *launch, CUresult result) {
    if (launch->meter) {
        int saved = errno;
        uint64_t left_ns = plimsoll_now_ns();
        pthread_mutex_lock(&SHARES->lock);
        count_out(launch, result, left_ns);
        pthread_mutex_unlock(&SHARES->lock);
        errno = saved;
    }
    if (launch->is_held)
        plimsoll_release_thread(launch->cancelling);
    plimsoll_depth--;
    return result;
}

/* --- waiting for what was launched ------------------------------------------------------------------------
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
    return plimsoll_depth == 0 && __atomic_load_n(&SHARES->under_way, __ATOMIC_RELAXED) > 0;
}

/* Under the lock. */
static struct plimsoll_meter *with_tail(uint64_t context) {
    struct plimsoll_meter *meter = context ? plimsoll_meter_of(context) : NULL;
    bool has_tail = meter && meter->is_under_way && !meter->is_broken && meter->tail_count > 0 &&
                    meter->mark_count < PLIMSOLL_MARKS;
    return has_tail ? meter : NULL;
}

/* In whatever context. */
static bool has_tail(CUstream stream) {
    uint64_t key = plimsoll_stream_key(stream);
    bool is_found = false;
    pthread_mutex_lock(&SHARES->lock);
    for (int i = 0; i < PLIMSOLL_METERS && !is_found; i++)
        is_found = plimsoll_tail_of(&SHARES->meters[i], key) != NULL;
    pthread_mutex_unlock(&SHARES->lock);
    return is_found;
}

static void mark_tail(CUstream stream) {
    uint64_t context = context_of(stream);
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = with_tail(context);
    if (meter && plimsoll_tail_of(meter, plimsoll_stream_key(stream)))
        plimsoll_mark(meter, stream, 0);
    pthread_mutex_unlock(&SHARES->lock);
}

/* An event in the legacy stream would break the captures of all streams that keep order with it, and the
 * program may wait for something while one of them is under way. A thread's own default stream is made by the
 * first question after it. */
static void see_to_tail(CUstream stream) {
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
    see_to_tail(stream);
    end_errand(&errand);
}

/* Of the program's own streams some may be gone; the context is not, nor are the default ones. */
void plimsoll_before_sync_context(void) {
    if (!is_metered())
        return;
    struct errand errand = begin_errand();
    see_to_tail(NULL);
    see_to_tail(CU_STREAM_PER_THREAD);
    uint64_t context = context_of(NULL);
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = with_tail(context);
    if (meter)
        (void)plimsoll_mark_context(meter);
    pthread_mutex_unlock(&SHARES->lock);
    end_errand(&errand);
}

void plimsoll_after_sync(void) {
    if (!is_metered())
        return;
    struct errand errand = begin_errand();
    plimsoll_bursts_look(true);
    end_errand(&errand);
}
