/* No thread holds the lock during a query to the driver. The marks to query are copied before, and the
 * results are used after, unless the context ended in between.
 *
 * Marks are dated by the GPU's clock, as the time since an anchor: a mark that was reached earlier. The
 * anchor's own time on the host's clock is only bounded. No mark was reached before it was recorded, or after
 * a poll saw that it was. The latest possible time is used: one of many polls comes right after the end of
 * some work, whereas the recording of a mark behind long kernels bounds little.
 */
#include "share/looks.h"

#include "clock.h"
#include "driver/driver.h"
#include "share/bursts.h"
#include "share/estimates.h"
#include "share/gate.h"
#include "share/marks.h"
#include "share/meters.h"

#define SHARES (&plimsoll.shares)

/* The driver gives times as floats. Beyond this span they are coarser than two microseconds. */
#define ANCHORED_NS 16000000000
/* The clocks of GPU and host drift apart by at most this part of the time, 61 ppm. */
#define DRIFT_SHIFT 14
/* A tail without a mark counts as done this long after its expected end. */
#define TAIL_NS 1000000
#define AT_ONCE_NS 2000

/* --- asking ----------------------------------------------------------------------------------------------
 */

static bool is_behind(const struct plimsoll_meter *meter, unsigned index) {
    for (unsigned i = 0; i < index; i++)
        if (!meter->look.is_reached[i] && meter->marks[i].stream == meter->marks[index].stream)
            return true;
    return false;
}

static void date(struct plimsoll_look *look, unsigned index, CUevent event) {
    float passed_ms = 0;
    if (!look->anchor)
        look->anchor = event;
    if (look->anchor != event && CALLED(cuEventElapsedTime)(&passed_ms, look->anchor, event) != CUDA_SUCCESS)
        look->is_failed = true;
    look->since_anchor_ns[index] = (int64_t)((double)passed_ms * 1e6);
}

static void ask_each(struct plimsoll_meter *meter) {
    struct plimsoll_look *look = &meter->look;
    for (unsigned i = 0; i < look->count && !look->is_failed; i++) {
        look->is_reached[i] = false;
        if (is_behind(meter, i))
            continue;
        CUresult result = REAL(cuEventQuery)(meter->marks[i].event);
        look->is_reached[i] = result == CUDA_SUCCESS;
        look->is_failed = result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
        if (look->is_reached[i])
            date(look, i, meter->marks[i].event);
    }
    look->seen_ns = plimsoll_now_ns();
}

/* In relaxed mode: otherwise a query would break the capture of another thread. */
static void ask(struct plimsoll_meter *meter, uint64_t context) {
    CUcontext popped, of = (CUcontext)(uintptr_t)context; // NOLINT
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (CALLED(cuCtxPushCurrent_v2)(of) != CUDA_SUCCESS) {
        meter->look.is_failed = true;
        return;
    }
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    ask_each(meter);
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    CALLED(cuCtxPopCurrent_v2)(&popped);
}

/* Needs the lock. */
static bool begin_look(struct plimsoll_meter *meter) {
    if (!meter->context || meter->is_looked_at || meter->mark_count == 0)
        return false;
    meter->is_looked_at = true;
    meter->users++;
    meter->look.count = meter->mark_count;
    meter->look.anchor = meter->anchor;
    meter->look.is_failed = false;
    return true;
}

/* --- taking in -------------------------------------------------------------------------------------------
 */

/* Corrects the anchor's time within its bounds. This function and all below need the lock. */
static void narrow(struct plimsoll_meter *meter, const struct plimsoll_look *look) {
    if (!meter->anchor && look->anchor) {
        meter->anchor = look->anchor;
        meter->anchor_ns = meter->narrowed_ns = look->seen_ns;
    }
    meter->anchor_ns += (look->seen_ns - meter->narrowed_ns) >> DRIFT_SHIFT;
    meter->narrowed_ns = look->seen_ns;
    for (unsigned i = 0; i < look->count; i++) {
        if (!look->is_reached[i])
            continue;
        int64_t since_ns = look->since_anchor_ns[i], now_ns = (int64_t)meter->anchor_ns;
        int64_t least_ns = (int64_t)meter->marks[i].recorded_ns - since_ns;
        int64_t most_ns = (int64_t)look->seen_ns - since_ns;
        meter->anchor_ns = (uint64_t)(now_ns < least_ns ? least_ns : now_ns > most_ns ? most_ns : now_ns);
    }
}

static uint64_t distance(uint64_t one, uint64_t other) {
    return one > other ? one - other : other - one;
}

/* The part of a stretch of time in which this process itself executed. Within one slice that is the whole
 * stretch. A longer stretch was shared all the time, or was interrupted once by a slice of each other
 * process. The result is the alternative nearest to the expected time. */
static uint64_t executed_of(uint64_t stretch_ns, uint64_t expected_ns) {
    uint64_t slice_ns = plimsoll_gate_slice_ns(), sharers = plimsoll_gate_sharers();
    uint64_t rounds = stretch_ns / (sharers * slice_ns) + 1, others_ns = rounds * (sharers - 1) * slice_ns;
    uint64_t part_ns = stretch_ns / sharers;
    uint64_t cut_ns = stretch_ns > others_ns ? stretch_ns - others_ns : 0;
    if (stretch_ns <= slice_ns || sharers == 1 || expected_ns == 0)
        return stretch_ns <= slice_ns ? stretch_ns : part_ns;
    bool is_cut = cut_ns > 0 && distance(cut_ns, expected_ns) < distance(part_ns, expected_ns);
    uint64_t nearest_ns = is_cut ? cut_ns : part_ns;
    return distance(stretch_ns, expected_ns) < distance(nearest_ns, expected_ns) ? stretch_ns : nearest_ns;
}

/* Shorter launches change the average faster than longer ones. A long launch may have waited for something,
 * or other processes' slices may have interrupted it. A launch that really is long becomes overdue, and is
 * known by that. */
static void learn(struct plimsoll_meter *meter, const struct plimsoll_mark *mark, uint64_t at_ns) {
    uint64_t from_ns = plimsoll_later(meter->reached_ns, mark->entered_ns);
    if (mark->launches == 0 || at_ns <= from_ns)
        return;
    uint64_t each_ns = executed_of(at_ns - from_ns, mark->launches * meter->average_ns) / mark->launches;
    each_ns = each_ns ? each_ns : 1;
    meter->learned++;
    if (meter->average_ns == 0)
        meter->average_ns = each_ns;
    else if (each_ns > meter->average_ns)
        meter->average_ns += (each_ns - meter->average_ns) / 8 + 1;
    else
        meter->average_ns -= (meter->average_ns - each_ns) / 2;
}

/* A reached mark becomes the anchor when the old anchor is too far back. */
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
    struct plimsoll_look *look = &meter->look;
    meter->mark_count--;
    look->count--;
    for (unsigned i = index; i < meter->mark_count; i++)
        meter->marks[i] = meter->marks[i + 1];
    for (unsigned i = index; i < look->count; i++) {
        look->is_reached[i] = look->is_reached[i + 1];
        look->since_anchor_ns[i] = look->since_anchor_ns[i + 1];
    }
}

static bool has_mark(const struct plimsoll_meter *meter, uint64_t key) {
    for (unsigned i = 0; i < meter->mark_count; i++)
        if (meter->marks[i].stream == key)
            return true;
    return false;
}

/* A segment ended where its last mark was reached and nothing follows. A launch between its two halves keeps
 * the segment open, because the mark at the segment's beginning may have been reached a moment ago. */
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

/* A mark that was reached as soon as it was recorded came late: the work before it had ended by then, at its
 * expected time. In an idle stream, a launch comes later than the mark at the beginning. */
static uint64_t moment_behind(const struct plimsoll_meter *meter, const struct plimsoll_mark *mark,
                              uint64_t at_ns) {
    bool is_late = mark->due_ns && mark->due_ns < at_ns && at_ns < mark->recorded_ns + AT_ONCE_NS;
    if (mark->is_begin)
        return plimsoll_later(at_ns, mark->entered_ns);
    return is_late ? plimsoll_later(mark->due_ns, meter->reached_ns) : at_ns;
}

/* When the first launch of a segment, which ended at `at_ns`, began to execute. Beside other processes the
 * launch first waited for this process's slice. A short launch waited for the time by which it took longer
 * than usual. A long one waited for half a round of slices. */
static uint64_t begin_of(const struct plimsoll_meter *meter, const struct plimsoll_mark *mark,
                         uint64_t at_ns) {
    uint64_t from_ns = mark->entered_ns, slice_ns = plimsoll_gate_slice_ns();
    uint64_t stretch_ns = at_ns > from_ns ? at_ns - from_ns : 0, usual_ns = meter->average_ns;
    if (plimsoll_gate_sharers() == 1 || usual_ns == 0 || stretch_ns <= usual_ns)
        return from_ns;
    if (usual_ns > slice_ns)
        return from_ns + plimsoll_sooner(plimsoll_first_wait_ns(), stretch_ns - usual_ns);
    return stretch_ns <= 2 * usual_ns ? from_ns : at_ns - usual_ns;
}

static void retire(struct plimsoll_meter *meter, const struct plimsoll_mark *mark, uint64_t at_ns) {
    at_ns = moment_behind(meter, mark, at_ns);
    if (mark->is_begin || mark->is_first)
        plimsoll_burst_executed(meter->gpu, mark->is_begin ? at_ns : begin_of(meter, mark, at_ns));
    if (!mark->is_begin)
        plimsoll_burst_ended(meter->gpu, at_ns);
    learn(meter, mark, at_ns);
    meter->reached_ns = plimsoll_later(meter->reached_ns, at_ns);
    close_segments(meter);
    plimsoll_burst_settle(meter->gpu, at_ns);
}

/* The earliest reached mark whose result was not used yet; -1 for none. */
static int earliest(const struct plimsoll_look *look) {
    int found = -1;
    for (unsigned i = 0; i < look->count; i++)
        if (look->is_reached[i] && (found < 0 || look->since_anchor_ns[i] < look->since_anchor_ns[found]))
            found = (int)i;
    return found;
}

/* Uses the results in the order in which the marks were reached, so that a burst ends before the next one
 * begins. */
static void take_in(struct plimsoll_meter *meter) {
    struct plimsoll_look *look = &meter->look;
    int index;
    narrow(meter, look);
    uint64_t anchor_ns = meter->anchor_ns; /* the meter may get another anchor below */
    while ((index = earliest(look)) >= 0) {
        int64_t at_ns = (int64_t)anchor_ns + look->since_anchor_ns[index];
        struct plimsoll_mark mark = meter->marks[index];
        remove_mark(meter, (unsigned)index);
        retire(meter, &mark, plimsoll_sooner(at_ns < 0 ? 0 : (uint64_t)at_ns, look->seen_ns));
        spare_or_anchor(meter, mark.event, at_ns < 0 ? 0 : (uint64_t)at_ns);
    }
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

static void end_look(struct plimsoll_meter *meter, uint64_t life) {
    meter->users--;
    meter->is_looked_at = false;
    if (meter->life != life)
        return;
    if (meter->look.is_failed)
        give_up(meter);
    else
        take_in(meter);
    plimsoll_burst_presume(meter->gpu, meter->look.seen_ns);
    plimsoll_burst_tell_queue(meter->gpu);
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

/* Where the driver records no mark behind a tail, the tail counts as done at its expected end. */
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
    pthread_mutex_lock(&SHARES->lock);
    uint64_t life = meter->life, context = meter->context;
    bool is_begun = begin_look(meter);
    pthread_mutex_unlock(&SHARES->lock);
    if (!is_begun)
        return;
    ask(meter, context);
    pthread_mutex_lock(&SHARES->lock);
    end_look(meter, life);
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

void plimsoll_look(bool is_end_likely) {
    uint64_t now_ns = plimsoll_now_ns();
    __atomic_store_n(&SHARES->looked_ns, now_ns, __ATOMIC_RELAXED);
    for (struct plimsoll_meter *meter = all_meters(); meter; meter = meter->next) {
        plimsoll_look_at(meter);
        pthread_mutex_lock(&SHARES->lock);
        see_to_tails(meter, is_end_likely);
        plimsoll_burst_tell_queue(meter->gpu);
        pthread_mutex_unlock(&SHARES->lock);
    }
    plimsoll_bursts_tell_look(now_ns); /* after the polls: otherwise the stale words of a process that was
                                          stopped would count once more */
}
