/* Nobody keeps the lock while the driver is asked: what it may tell is copied before, and taken in after,
 * unless the context ended meanwhile.
 *
 * Marks are dated by the GPU's clock, as the time from an anchor, a mark that was reached earlier. The
 * anchor's own moment on the host's clock is only bounded: no mark was reached before it was recorded, or
 * after it was seen to be. Each mark narrows these bounds, and one that was recorded into an idle stream
 * closes them.
 */
#include "looks.h"

#include "bursts.h"
#include "clock.h"
#include "driver.h"
#include "gate.h"
#include "marks.h"

#define SHARES (&plimsoll.shares)

/* The driver tells times as floats: beyond this they are coarser than two microseconds. */
#define ANCHORED_NS 16000000000
/* How long after its time a tail without a mark gets one from the keeper. */
#define TAIL_NS 1000000

struct look {
    uint64_t context, life;
    CUevent anchor;
    uint64_t anchor_ns, seen_ns;
    unsigned count;
    struct plimsoll_mark marks[PLIMSOLL_MARKS];
    int64_t since_anchor_ns[PLIMSOLL_MARKS]; /* of reached ones */
    bool is_reached[PLIMSOLL_MARKS];
    bool is_failed;
};

/* --- asking ----------------------------------------------------------------------------------------------
 */

static bool is_behind(const struct look *look, unsigned index) {
    for (unsigned i = 0; i < index; i++)
        if (!look->is_reached[i] && look->marks[i].stream == look->marks[index].stream)
            return true;
    return false;
}

static void date(struct look *look, unsigned index) {
    float passed_ms = 0;
    if (!look->anchor)
        look->anchor = look->marks[index].event;
    if (look->anchor != look->marks[index].event &&
        CALLED(cuEventElapsedTime)(&passed_ms, look->anchor, look->marks[index].event) != CUDA_SUCCESS)
        look->is_failed = true;
    look->since_anchor_ns[index] = (int64_t)((double)passed_ms * 1e6);
}

static void ask_each(struct look *look) {
    for (unsigned i = 0; i < look->count && !look->is_failed; i++) {
        if (is_behind(look, i))
            continue;
        CUresult result = REAL(cuEventQuery)(look->marks[i].event);
        look->is_reached[i] = result == CUDA_SUCCESS;
        look->is_failed = result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
        if (look->is_reached[i])
            date(look, i);
    }
    look->seen_ns = plimsoll_now_ns();
}

/* In relaxed mode: a query would break the capture of another thread. */
static void ask(struct look *look) {
    CUcontext popped, of = (CUcontext)(uintptr_t)look->context; // NOLINT
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (CALLED(cuCtxPushCurrent_v2)(of) != CUDA_SUCCESS) {
        look->is_failed = true;
        return;
    }
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    ask_each(look);
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    CALLED(cuCtxPopCurrent_v2)(&popped);
}

/* Under the lock. */
static bool begin_look(struct plimsoll_meter *meter, struct look *look) {
    if (!meter->context || meter->is_looked_at || meter->mark_count == 0)
        return false;
    meter->is_looked_at = true;
    meter->users++;
    look->context = meter->context;
    look->life = meter->life;
    look->anchor = meter->anchor;
    look->anchor_ns = meter->anchor_ns;
    look->count = meter->mark_count;
    for (unsigned i = 0; i < look->count; i++)
        look->marks[i] = meter->marks[i];
    return true;
}

/* --- taking in -------------------------------------------------------------------------------------------
 */

/* Under the lock, as all below. */
static uint64_t moment_of(const struct look *look, unsigned index) {
    int64_t at_ns = (int64_t)look->anchor_ns + look->since_anchor_ns[index];
    return at_ns < 0 ? 0 : plimsoll_sooner((uint64_t)at_ns, look->seen_ns);
}

/* The bounds of the anchor's moment. A segment mostly begins as soon as that is recorded; another mark stands
 * behind work, and was reached shortly before it was seen to be. */
static void narrow(struct plimsoll_meter *meter, const struct look *look) {
    if (!meter->anchor) {
        meter->anchor = look->anchor;
        for (unsigned i = 0; i < look->count; i++)
            if (look->marks[i].event == look->anchor)
                meter->anchor_ns = look->marks[i].is_begin ? look->marks[i].recorded_ns : look->seen_ns;
    }
    for (unsigned i = 0; i < look->count; i++) {
        if (!look->is_reached[i])
            continue;
        int64_t since_ns = look->since_anchor_ns[i], now_ns = (int64_t)meter->anchor_ns;
        int64_t least_ns = (int64_t)look->marks[i].recorded_ns - since_ns;
        int64_t most_ns = (int64_t)look->seen_ns - since_ns;
        meter->anchor_ns = (uint64_t)(now_ns < least_ns ? least_ns : now_ns > most_ns ? most_ns : now_ns);
    }
}

/* A stretch within one of the process's slices is its own; a longer one was shared. */
static uint64_t executed_of(uint64_t stretch_ns) {
    uint64_t slice_ns = plimsoll_gate_slice_ns();
    return stretch_ns <= slice_ns ? stretch_ns
                                  : plimsoll_later(slice_ns, stretch_ns / plimsoll_gate_sharers());
}

/* Longer launches count sooner than shorter ones: rather too little work is queued than too much. */
static void learn(struct plimsoll_meter *meter, const struct plimsoll_mark *mark, uint64_t at_ns) {
    uint64_t from_ns = plimsoll_later(meter->reached_ns, mark->entered_ns);
    if (mark->launches == 0 || at_ns <= from_ns)
        return;
    uint64_t each_ns = executed_of(at_ns - from_ns) / mark->launches;
    each_ns = each_ns ? each_ns : 1;
    if (meter->average_ns == 0)
        meter->average_ns = each_ns;
    else if (each_ns > meter->average_ns)
        meter->average_ns += (each_ns - meter->average_ns) / 2 + 1;
    else
        meter->average_ns -= (meter->average_ns - each_ns) / 8;
}

/* A mark that is reached becomes the anchor when the old one is too far back. */
static void spare_or_anchor(struct plimsoll_meter *meter, CUevent event, uint64_t at_ns) {
    if (event == meter->anchor)
        return;
    if (at_ns > meter->anchor_ns + ANCHORED_NS) {
        plimsoll_spare(meter, meter->anchor);
        meter->anchor = event;
        meter->anchor_ns = at_ns;
        return;
    }
    plimsoll_spare(meter, event);
}

static void remove_mark(struct plimsoll_meter *meter, unsigned index) {
    meter->mark_count--;
    for (unsigned i = index; i < meter->mark_count; i++)
        meter->marks[i] = meter->marks[i + 1];
}

static bool has_mark(const struct plimsoll_meter *meter, uint64_t key) {
    for (unsigned i = 0; i < meter->mark_count; i++)
        if (meter->marks[i].stream == key)
            return true;
    return false;
}

/* The segment ended where its last mark was reached and nothing follows. A launch between its two halves
 * keeps it open: the beginning of its segment may just have been reached. */
static void close_segments(struct plimsoll_meter *meter) {
    for (unsigned i = meter->stream_count; i-- > 0;) {
        struct plimsoll_stream *stream = &meter->streams[i];
        if (stream->tail > 0 || meter->launching > 0 || has_mark(meter, stream->key))
            continue;
        stream->is_open = false;
        if (!stream->is_blocked)
            plimsoll_stream_drop(meter, stream);
    }
}

static int index_of(const struct plimsoll_meter *meter, uint64_t serial) {
    for (unsigned i = 0; i < meter->mark_count; i++)
        if (meter->marks[i].serial == serial)
            return (int)i;
    return -1;
}

static void retire(struct plimsoll_meter *meter, uint64_t serial, uint64_t at_ns) {
    int index = index_of(meter, serial);
    if (index < 0)
        return;
    struct plimsoll_mark mark = meter->marks[index];
    remove_mark(meter, (unsigned)index);
    if (mark.is_begin) /* into an idle stream the launch comes later than the mark before it */
        plimsoll_burst_executed(meter->gpu, at_ns = plimsoll_later(at_ns, mark.entered_ns));
    else
        plimsoll_burst_ended(meter->gpu, at_ns);
    learn(meter, &mark, at_ns);
    meter->reached_ns = plimsoll_later(meter->reached_ns, at_ns);
    close_segments(meter);
    plimsoll_burst_settle(meter->gpu, at_ns);
}

/* The earliest that was reached and is not taken in; -1 for none. */
static int earliest(const struct look *look) {
    int found = -1;
    for (unsigned i = 0; i < look->count; i++)
        if (look->is_reached[i] && (found < 0 || look->since_anchor_ns[i] < look->since_anchor_ns[found]))
            found = (int)i;
    return found;
}

/* In the order in which they were reached, so that a burst ends before the next one begins. Events are given
 * back last, as the anchor's is among them. */
static void take_in(struct plimsoll_meter *meter, struct look *look) {
    int index;
    narrow(meter, look);
    look->anchor_ns = meter->anchor_ns; /* the meter's may become another one below */
    while ((index = earliest(look)) >= 0) {
        uint64_t at_ns = moment_of(look, (unsigned)index);
        look->is_reached[index] = false;
        retire(meter, look->marks[index].serial, at_ns);
        spare_or_anchor(meter, look->marks[index].event, at_ns);
    }
}

/* An error here is the context's own end: its kernels failed for good, or the driver goes down. */
static void give_up(struct plimsoll_meter *meter) {
    for (unsigned i = 0; i < meter->mark_count; i++)
        if (meter->marks[i].event != meter->anchor)
            plimsoll_spare(meter, meter->marks[i].event);
    meter->mark_count = meter->stream_count = 0;
    meter->is_broken = true;
    plimsoll_burst_settle(meter->gpu, plimsoll_now_ns());
}

static void end_look(struct plimsoll_meter *meter, struct look *look) {
    meter->users--;
    meter->is_looked_at = false;
    if (meter->life != look->life)
        return;
    if (look->is_failed)
        give_up(meter);
    else
        take_in(meter, look);
}

/* --- tails -----------------------------------------------------------------------------------------------
 */

static uint64_t tail_due_ns(const struct plimsoll_meter *meter) {
    uint64_t from_ns = plimsoll_later(meter->reached_ns, meter->entered_ns);
    return from_ns + plimsoll_outstanding(meter) * meter->average_ns * plimsoll_gate_sharers();
}

static bool has_tail(const struct plimsoll_meter *meter) {
    for (unsigned i = 0; i < meter->stream_count; i++)
        if (meter->streams[i].tail > 0 && !has_mark(meter, meter->streams[i].key))
            return true;
    return false;
}

/* Where the driver records no mark behind them, tails count as done when they should be. */
static void drop_tails(struct plimsoll_meter *meter, uint64_t due_ns) {
    for (unsigned i = 0; i < meter->stream_count; i++)
        if (!has_mark(meter, meter->streams[i].key))
            meter->streams[i].tail = 0;
    plimsoll_burst_ended(meter->gpu, due_ns);
    close_segments(meter);
    plimsoll_burst_settle(meter->gpu, due_ns);
}

static void see_to_tails(struct plimsoll_meter *meter, bool is_end_likely) {
    uint64_t now_ns = plimsoll_now_ns(), due_ns = tail_due_ns(meter);
    if (!meter->context || meter->is_broken || meter->launching > 0 || !has_tail(meter))
        return;
    if (is_end_likely || now_ns > due_ns)
        plimsoll_mark_context(meter);
    if (meter->context && now_ns > due_ns + TAIL_NS && meter->launching == 0 && has_tail(meter))
        drop_tails(meter, due_ns);
}

/* --- looks -----------------------------------------------------------------------------------------------
 */

void plimsoll_look_at(struct plimsoll_meter *meter) {
    struct look look;
    look.count = 0;
    look.is_failed = false;
    for (unsigned i = 0; i < PLIMSOLL_MARKS; i++)
        look.is_reached[i] = false;
    pthread_mutex_lock(&SHARES->lock);
    bool is_begun = begin_look(meter, &look);
    pthread_mutex_unlock(&SHARES->lock);
    if (!is_begun)
        return;
    ask(&look);
    pthread_mutex_lock(&SHARES->lock);
    end_look(meter, &look);
    plimsoll_burst_tell_queue(meter->gpu);
    pthread_mutex_unlock(&SHARES->lock);
}

/* Meters are never freed, so the list may be walked without the lock from a head that was read under it. */
static struct plimsoll_meter *all_meters(void) {
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *first = SHARES->meters;
    pthread_mutex_unlock(&SHARES->lock);
    return first;
}

void plimsoll_look(bool is_end_likely) {
    __atomic_store_n(&SHARES->looked_ns, plimsoll_now_ns(), __ATOMIC_RELAXED);
    for (struct plimsoll_meter *meter = all_meters(); meter; meter = meter->next) {
        plimsoll_look_at(meter);
        pthread_mutex_lock(&SHARES->lock);
        see_to_tails(meter, is_end_likely);
        plimsoll_burst_tell_queue(meter->gpu);
        pthread_mutex_unlock(&SHARES->lock);
    }
}
