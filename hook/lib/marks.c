/* Recording is a call of the driver like any other, and may take long: for that time the lock is let go, and
 * the meter counts a user and a launch under way, so that neither it nor its burst ends.
 */
#include "marks.h"

#include "bursts.h"
#include "driver.h"

#define SHARES (&plimsoll.shares)

/* What the driver hands to the GPU it hands over at the end of the call; of a call that takes longer than
 * this nobody knows (it may load code first, or wait for the work itself), and what is over counts as work.
 */
#define CALL_NS 2000

uint64_t plimsoll_handed_over_ns(uint64_t entered_ns, uint64_t left_ns) {
    return left_ns - entered_ns < CALL_NS ? left_ns : entered_ns + CALL_NS;
}

/* After these the context is as good as gone. */
static bool is_final(CUresult result) {
    return result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
           (result >= CUDA_ERROR_ILLEGAL_ADDRESS && result <= CUDA_ERROR_LAUNCH_FAILED);
}

/* With the lock back: the event if it was recorded and its context is still there. */
static CUevent recorded(struct plimsoll_meter *meter, uint64_t life, CUevent event, CUresult result) {
    meter->users--;
    if (meter->life != life)
        return NULL;
    if (result == CUDA_SUCCESS)
        return event;
    plimsoll_spare(meter, event);
    meter->is_broken |= is_final(result);
    return NULL;
}

CUevent plimsoll_record(struct plimsoll_meter *meter, CUstream stream, uint64_t *at_ns) {
    uint64_t life = meter->life;
    meter->users++;
    pthread_mutex_unlock(&SHARES->lock);
    CUevent event = plimsoll_event_take(meter);
    uint64_t before_ns = plimsoll_now_ns();
    CUresult result = event ? CALLED(cuEventRecord)(event, stream) : CUDA_ERROR_OUT_OF_MEMORY;
    *at_ns = plimsoll_handed_over_ns(before_ns, plimsoll_now_ns());
    pthread_mutex_lock(&SHARES->lock);
    return recorded(meter, life, event, result);
}

/* In a capture the driver would break it: those wait meanwhile, or it is not asked. */
static CUresult ask(uint64_t context, CUevent event) {
    if (!event || !plimsoll_begin_look())
        return CUDA_ERROR_NOT_READY;
    CUresult result = CALLED(cuCtxRecordEvent)((CUcontext)(uintptr_t)context, event); // NOLINT
    plimsoll_end_look();
    return result;
}

static CUevent record_context(struct plimsoll_meter *meter) {
    uint64_t context = meter->context, life = meter->life;
    meter->users++;
    pthread_mutex_unlock(&SHARES->lock);
    CUevent event = plimsoll_event_take(meter);
    CUresult result = ask(context, event);
    pthread_mutex_lock(&SHARES->lock);
    return recorded(meter, life, event, result);
}

/* When what was launched so far should be done; 0 while nothing is known. */
static uint64_t expected_ns(const struct plimsoll_meter *meter) {
    uint64_t due_ns = plimsoll_burst_due_ns(meter), least_ns = meter->entered_ns + meter->average_ns;
    return meter->average_ns == 0 ? 0 : due_ns > least_ns ? due_ns : least_ns;
}

/* Gives a stream's launches back that no event follows after all. */
static void put_back(struct plimsoll_meter *meter, const struct plimsoll_tail *tail) {
    if (tail->launches > 0 && !plimsoll_tail_add(meter, tail))
        meter->outstanding -= tail->launches;
}

static struct plimsoll_mark mark_behind(const struct plimsoll_meter *meter,
                                        const struct plimsoll_tail *tail) {
    return (struct plimsoll_mark){.stream = tail->stream,
                                  .launches = tail->launches,
                                  .entered_ns = tail->entered_ns,
                                  .due_ns = expected_ns(meter)};
}

/* The event of `made`, NULL for none, covers its launches now. */
static bool keep(struct plimsoll_meter *meter, const struct plimsoll_mark *made) {
    if (made->event && meter->mark_count < PLIMSOLL_MARKS) {
        plimsoll_burst_mark(meter, made);
        return true;
    }
    plimsoll_spare(meter, made->event);
    return false;
}

void plimsoll_mark(struct plimsoll_meter *meter, CUstream stream, unsigned launches) {
    uint64_t life = meter->life;
    struct plimsoll_tail tail = plimsoll_tail_take(meter, plimsoll_stream_key(stream));
    if (tail.launches == 0)
        tail.entered_ns = meter->entered_ns;
    tail.launches += launches;
    struct plimsoll_mark made = mark_behind(meter, &tail);
    meter->launching++;
    made.event = plimsoll_record(meter, stream, &made.recorded_ns);
    made.recorded_ns = plimsoll_now_ns(); /* at the latest */
    if (meter->life != life)
        return;
    meter->launching--;
    if (!keep(meter, &made))
        put_back(meter, &tail);
}

bool plimsoll_mark_context(struct plimsoll_meter *meter) {
    struct plimsoll_tail tails[PLIMSOLL_TAILS];
    struct plimsoll_tail sum = plimsoll_tail_sum(meter);
    struct plimsoll_mark made = mark_behind(meter, &sum);
    unsigned count = meter->tail_count;
    uint64_t life = meter->life;
    if (!HAS(cuCtxRecordEvent))
        return false;
    for (unsigned i = 0; i < count; i++)
        tails[i] = meter->tails[i];
    meter->tail_count = 0;
    meter->launching++;
    made.event = record_context(meter);
    made.recorded_ns = plimsoll_now_ns();
    if (meter->life != life)
        return true;
    meter->launching--;
    bool is_kept = keep(meter, &made);
    for (unsigned i = 0; i < count && !is_kept; i++)
        put_back(meter, &tails[i]);
    return is_kept;
}
