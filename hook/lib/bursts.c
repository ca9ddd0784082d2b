/* What the events of ours tell: when a burst ended, and what a launch takes. Nobody keeps the lock while the
 * driver is asked: what it may tell is copied before, and judged anew after, as the context may have ended
 * meanwhile.
 */
#include "bursts.h"

#include <time.h>

#include "driver.h"
#include "marks.h"

#define SHARES (&plimsoll.shares)

#define AT_ONCE_NS 1000

uint64_t plimsoll_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- the process's bursts: the union of its contexts' ----------------------------------------------------
 */

/* Since before sum: who reads between the two sees less than there was, for a moment, and never more. */
static void publish(void) {
    struct plimsoll_slot *slot = &plimsoll.counts->slots[plimsoll.slot];
    __atomic_store_n(&slot->busy_since_ns, SHARES->busy_since_ns, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->busy_ns, SHARES->busy_ns, __ATOMIC_RELEASE);
}

void plimsoll_burst_begin(struct plimsoll_meter *meter, uint64_t begun_ns) {
    meter->is_under_way = true;
    meter->begun_ns = meter->begun_latest_ns = meter->ended_ns = begun_ns;
    meter->launched = 0;
    if (__atomic_fetch_add(&SHARES->under_way, 1, __ATOMIC_RELAXED) > 0)
        return;
    SHARES->busy_since_ns = begun_ns;
    SHARES->latest_end_ns = begun_ns;
    publish();
}

void plimsoll_burst_begin_later(struct plimsoll_meter *meter, uint64_t begun_ns, uint64_t latest_ns) {
    meter->begun_latest_ns = latest_ns;
    bool is_first = SHARES->busy_since_ns == meter->begun_ns;
    meter->begun_ns = meter->ended_ns = begun_ns;
    if (!is_first || SHARES->under_way != 1)
        return;
    SHARES->busy_since_ns = SHARES->latest_end_ns = begun_ns;
    publish();
}

/* A thread may lose its processor within the first launch, before or after the GPU was given it: then the
 * average says when that was. */
static void refine_begin(struct plimsoll_meter *meter) {
    uint64_t took_ns = meter->launched * meter->average_ns;
    uint64_t begun_ns = meter->ended_ns > took_ns ? meter->ended_ns - took_ns : 0;
    begun_ns = begun_ns < meter->begun_latest_ns ? begun_ns : meter->begun_latest_ns;
    if (begun_ns <= meter->begun_ns || meter->average_ns == 0)
        return;
    if (SHARES->busy_since_ns == meter->begun_ns && SHARES->under_way == 1)
        SHARES->busy_since_ns = begun_ns;
}

static void end(struct plimsoll_meter *meter) {
    refine_begin(meter);
    meter->is_under_way = false;
    meter->outstanding = meter->tail_count = 0;
    plimsoll_spare(meter, meter->start);
    meter->start = NULL;
    if (meter->ended_ns > SHARES->latest_end_ns)
        SHARES->latest_end_ns = meter->ended_ns;
    if (__atomic_sub_fetch(&SHARES->under_way, 1, __ATOMIC_RELAXED) > 0)
        return;
    SHARES->busy_ns += SHARES->latest_end_ns - SHARES->busy_since_ns;
    SHARES->idle_since_ns = SHARES->latest_end_ns;
    SHARES->busy_since_ns = 0;
    publish();
}

/* --- one context's burst ---------------------------------------------------------------------------------
 */

static uint64_t later_of(uint64_t one, uint64_t other) {
    return one > other ? one : other;
}

/* Queued behind what is done, or begun when it was launched. */
uint64_t plimsoll_burst_due_ns(const struct plimsoll_meter *meter) {
    uint64_t from_ns = meter->mark_count > 0 ? meter->ended_ns : later_of(meter->ended_ns, meter->entered_ns);
    return from_ns + meter->outstanding * meter->average_ns;
}

void plimsoll_burst_settle(struct plimsoll_meter *meter, uint64_t now_ns) {
    if (!meter->is_under_way || meter->launching > 0 || meter->mark_count > 0)
        return;
    if (meter->tail_count > 0) {
        uint64_t due_ns = plimsoll_burst_due_ns(meter);
        if (now_ns < due_ns)
            return;
        meter->ended_ns = due_ns;
    }
    end(meter);
}

void plimsoll_burst_abandon(struct plimsoll_meter *meter) {
    if (!meter->is_under_way)
        return;
    meter->ended_ns = later_of(meter->ended_ns, plimsoll_now_ns());
    end(meter);
}

void plimsoll_burst_mark(struct plimsoll_meter *meter, const struct plimsoll_mark *mark) {
    struct plimsoll_mark *made = &meter->marks[meter->mark_count++];
    *made = *mark;
    made->serial = ++SHARES->serial;
}

/* --- asking the driver -----------------------------------------------------------------------------------
 */

/* What one look finds, outside the lock. */
struct look {
    uint64_t context, life;
    CUevent start;
    uint64_t start_ns;
    unsigned count;
    struct plimsoll_mark marks[PLIMSOLL_MARKS];
    bool is_done[PLIMSOLL_MARKS];
    bool is_failed;
    uint64_t ended_ns; /* of the latest one that is done */
};

static bool is_behind(const struct look *look, unsigned index) {
    for (unsigned i = 0; i < index; i++)
        if (!look->is_done[i] && look->marks[i].stream == look->marks[index].stream)
            return true;
    return false;
}

/* The moment of an event on the host's clock. */
static uint64_t moment_of(const struct look *look, CUevent event) {
    float passed_ms;
    uint64_t now_ns = plimsoll_now_ns();
    if (!look->start || CALLED(cuEventElapsedTime)(&passed_ms, look->start, event) != CUDA_SUCCESS)
        return now_ns;
    uint64_t at_ns = look->start_ns + (passed_ms > 0 ? (uint64_t)((double)passed_ms * 1e6) : 0);
    return at_ns < now_ns ? at_ns : now_ns;
}

/* A thread that lost its turn between a launch and the event behind it records that event late: it is reached
 * at once, and tells nothing but that the work was done by then. */
static uint64_t end_of(const struct look *look, const struct plimsoll_mark *mark) {
    uint64_t at_ns = moment_of(look, mark->event);
    bool is_late = at_ns < mark->recorded_ns + AT_ONCE_NS;
    return is_late && mark->due_ns != 0 && mark->due_ns < at_ns ? mark->due_ns : at_ns;
}

/* Of each stream only the last one that is done tells when. */
static void find_end(struct look *look) {
    for (unsigned i = 0; i < look->count; i++) {
        bool is_last = look->is_done[i];
        for (unsigned j = i + 1; j < look->count && is_last; j++)
            is_last = !(look->is_done[j] && look->marks[j].stream == look->marks[i].stream);
        if (is_last)
            look->ended_ns = later_of(look->ended_ns, end_of(look, &look->marks[i]));
    }
}

static void ask_each(struct look *look) {
    for (unsigned i = 0; i < look->count && !look->is_failed; i++) {
        CUresult result =
            is_behind(look, i) ? CUDA_ERROR_NOT_READY : REAL(cuEventQuery)(look->marks[i].event);
        look->is_done[i] = result == CUDA_SUCCESS;
        look->is_failed = result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
    }
    if (!look->is_failed)
        find_end(look);
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

static bool begin_look(struct plimsoll_meter *meter, struct look *look) {
    bool is_worth = meter->context && !meter->is_looked_at && meter->mark_count > 0;
    if (!is_worth)
        return false;
    meter->is_looked_at = true;
    meter->users++;
    look->context = meter->context;
    look->life = meter->life;
    look->start = meter->start;
    look->start_ns = meter->start_ns;
    look->count = meter->mark_count;
    for (unsigned i = 0; i < look->count; i++)
        look->marks[i] = meter->marks[i];
    return true;
}

/* A longer launch than the average counts at once, a shorter one by and by: rather too little work is queued
 * than too much. */
static void learn(struct plimsoll_meter *meter, uint64_t span_ns, unsigned launches) {
    uint64_t each_ns = span_ns / launches;
    meter->average_ns = each_ns > meter->average_ns ? each_ns : (3 * meter->average_ns + each_ns) / 4;
}

static unsigned retire(struct plimsoll_meter *meter, uint64_t serial) {
    for (unsigned i = 0; i < meter->mark_count; i++) {
        if (meter->marks[i].serial != serial)
            continue;
        unsigned launches = meter->marks[i].launches;
        plimsoll_spare(meter, meter->marks[i].event);
        meter->mark_count--;
        for (unsigned j = i; j < meter->mark_count; j++)
            meter->marks[j] = meter->marks[j + 1];
        return launches;
    }
    return 0;
}

/* From where on the launches that are done took their time: the end of those before them, or their own
 * beginning, where they came later beside one that goes on and on. The GPU's clock may lag, as a burst's
 * first event may have waited; then it is not compared with the host's. */
static uint64_t begin_of(const struct plimsoll_meter *meter, const struct look *look) {
    uint64_t entered_ns = UINT64_MAX;
    for (unsigned i = 0; i < look->count; i++)
        if (look->is_done[i] && look->marks[i].launches > 0 && look->marks[i].entered_ns < entered_ns)
            entered_ns = look->marks[i].entered_ns;
    return entered_ns < look->ended_ns ? later_of(meter->ended_ns, entered_ns) : meter->ended_ns;
}

/* An error here is the context's own end: its kernels failed for good, or the driver goes down. */
static void give_up(struct plimsoll_meter *meter) {
    for (unsigned i = 0; i < meter->mark_count; i++)
        plimsoll_spare(meter, meter->marks[i].event);
    meter->mark_count = 0;
    meter->is_broken = true;
    plimsoll_burst_abandon(meter);
}

static void end_look(struct plimsoll_meter *meter, const struct look *look) {
    unsigned launches = 0;
    meter->users--;
    meter->is_looked_at = false;
    if (meter->life != look->life || !meter->is_under_way)
        return;
    if (look->is_failed) {
        give_up(meter);
        return;
    }
    for (unsigned i = 0; i < look->count; i++)
        if (look->is_done[i])
            launches += retire(meter, look->marks[i].serial);
    meter->outstanding -= launches;
    if (launches > 0 && look->ended_ns > meter->ended_ns && !meter->stalled_ns)
        learn(meter, look->ended_ns - begin_of(meter, look), launches);
    meter->ended_ns = later_of(meter->ended_ns, look->ended_ns);
}

/* Under the lock. What no event follows is followed by one as soon as it should be done, or where the program
 * itself waited for it. */
static bool is_tail_due(const struct plimsoll_meter *meter, bool is_end_likely) {
    return meter->context && meter->is_under_way && !meter->is_broken && meter->launching == 0 &&
           meter->mark_count == 0 && meter->tail_count > 0 &&
           (is_end_likely || plimsoll_now_ns() >= plimsoll_burst_due_ns(meter));
}

/* True: there is an event more to be looked at. */
static bool look_once(struct plimsoll_meter *meter, bool is_end_likely) {
    struct look look = {.count = 0};
    pthread_mutex_lock(&SHARES->lock);
    bool is_begun = begin_look(meter, &look);
    pthread_mutex_unlock(&SHARES->lock);
    if (is_begun)
        ask(&look);
    pthread_mutex_lock(&SHARES->lock);
    if (is_begun)
        end_look(meter, &look);
    bool is_marked = is_tail_due(meter, is_end_likely) && plimsoll_mark_context(meter);
    if (!is_marked)
        plimsoll_burst_settle(meter, plimsoll_now_ns());
    pthread_mutex_unlock(&SHARES->lock);
    return is_marked;
}

void plimsoll_burst_look(struct plimsoll_meter *meter, bool is_end_likely) {
    if (look_once(meter, is_end_likely))
        (void)look_once(meter, is_end_likely);
}

bool plimsoll_bursts_look(bool is_end_likely) {
    for (int i = 0; i < PLIMSOLL_METERS; i++)
        plimsoll_burst_look(&SHARES->meters[i], is_end_likely);
    pthread_mutex_lock(&SHARES->lock);
    bool is_unfinished = SHARES->under_way > 0;
    pthread_mutex_unlock(&SHARES->lock);
    return is_unfinished;
}
