/* Which meter is whose, from a context's first launch to its end. Its events end before it does, as the
 * driver frees them with it: a question about one after that would be about memory that is somebody else's.
 */
#include "share/meters.h"

#include <string.h>
#include <sys/mman.h>

#include "share/bursts.h"
#include "clock.h"
#include "driver/driver.h"
#include "share/gate.h"
#include "share/keeper.h"
#include "share/looks.h"
#include "share/marks.h"

#define PATIENCE_NS 1000000000 /* for who is in a driver call with a context that is about to end */
#define STEP_NS 50000
/* So much later than twice its time, a launch is overdue. */
#define LATE_NS 20000
/* While the first of so many launches takes longer than others did, nobody can tell what the last will take.
 */
#define FEW 16
/* An average of fewer marks than this may be far off: the first are dated with the least certainty. */
#define SURE 4

#define SHARES (&plimsoll.shares)

/* A glibc before 2.34 says nothing where the program has no threads. */
int plimsoll_hold_thread(void) {
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

void plimsoll_release_thread(int before) {
    int ignored;
    pthread_setcancelstate(before, &ignored);
}

uint64_t plimsoll_stream_key(CUstream stream) {
    if (stream == CU_STREAM_PER_THREAD)
        return (uintptr_t)&plimsoll_depth;
    return stream == CU_STREAM_LEGACY ? 0 : (uintptr_t)stream;
}

/* --- contexts and streams --------------------------------------------------------------------------------
 */

/* From the kernel: a hook must not depend on the program's malloc. */
static struct plimsoll_meter *vacant_meter(void) {
    for (struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        if (meter->context == 0 && meter->users == 0)
            return meter;
    struct plimsoll_meter *made =
        mmap(NULL, sizeof(*made), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    made->next = SHARES->meters;
    return SHARES->meters = made;
}

struct plimsoll_meter *plimsoll_meter_of(uint64_t context, int gpu) {
    for (struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        if (meter->context == context)
            return meter;
    struct plimsoll_meter *meter = vacant_meter();
    if (meter) {
        /* But for `next`: others may be walking along the list. */
        memset(&meter->context, 0, sizeof(*meter) - offsetof(struct plimsoll_meter, context));
        meter->context = context;
        meter->gpu = gpu;
        meter->life = ++SHARES->serial;
    }
    return meter;
}

struct plimsoll_stream *plimsoll_stream_in(struct plimsoll_meter *meter, uint64_t key) {
    for (unsigned i = 0; i < meter->stream_count; i++)
        if (meter->streams[i].key == key)
            return &meter->streams[i];
    return NULL;
}

/* A stream that was blocked and into which nothing was launched since: whether it still is, nobody knows. */
static struct plimsoll_stream *idle_stream(struct plimsoll_meter *meter) {
    for (unsigned i = 0; i < meter->stream_count; i++)
        if (!meter->streams[i].is_open && meter->streams[i].tail == 0)
            return &meter->streams[i];
    return NULL;
}

struct plimsoll_stream *plimsoll_stream_for(struct plimsoll_meter *meter, uint64_t key) {
    struct plimsoll_stream *stream = plimsoll_stream_in(meter, key);
    if (stream)
        return stream;
    if (meter->stream_count == PLIMSOLL_STREAMS && (stream = idle_stream(meter)))
        plimsoll_stream_drop(meter, stream);
    if (meter->stream_count == PLIMSOLL_STREAMS)
        return NULL;
    stream = &meter->streams[meter->stream_count++];
    *stream = (struct plimsoll_stream){.key = key};
    return stream;
}

void plimsoll_stream_drop(struct plimsoll_meter *meter, struct plimsoll_stream *stream) {
    *stream = meter->streams[--meter->stream_count];
}

/* The oldest mark behind launches that execute now, or seem to: the beginning of their segment may not have
 * been looked at yet. NULL for none. */
static const struct plimsoll_mark *executing(const struct plimsoll_meter *meter) {
    for (unsigned i = 0; i < meter->mark_count; i++) {
        bool seems_to = !meter->marks[i].is_begin;
        for (unsigned j = 0; j < i; j++)
            if (meter->marks[j].stream == meter->marks[i].stream)
                seems_to &= meter->marks[j].is_begin && !meter->marks[j].is_blocked;
        if (seems_to)
            return &meter->marks[i];
    }
    return NULL;
}

/* Since what a mark follows can have executed. */
static uint64_t since_ns(const struct plimsoll_meter *meter, const struct plimsoll_mark *mark,
                         uint64_t now_ns) {
    uint64_t from_ns = plimsoll_later(meter->reached_ns, mark->entered_ns);
    return now_ns > from_ns ? now_ns - from_ns : 0;
}

static uint64_t executed_ns(const struct plimsoll_meter *meter, const struct plimsoll_mark *mark,
                            uint64_t now_ns) {
    return since_ns(meter, mark, now_ns) / plimsoll_gate_sharers();
}

/* Launches in the stream of a mark, which will take as long as those that it follows. */
static unsigned in_stream_of(const struct plimsoll_meter *meter, const struct plimsoll_mark *mark) {
    unsigned sum = 0;
    for (unsigned i = 0; i < meter->mark_count; i++)
        if (meter->marks[i].stream == mark->stream)
            sum += meter->marks[i].stands_for;
    for (unsigned i = 0; i < meter->stream_count; i++)
        if (meter->streams[i].key == mark->stream || mark->stream == PLIMSOLL_WHOLE_CONTEXT)
            sum += meter->streams[i].tail;
    return sum;
}

/* By how much what executes now is longer than the average. One launch with nothing behind it, such as a
 * kernel that spins, says nothing of others. */
static uint64_t longer_ns(const struct plimsoll_meter *meter, const struct plimsoll_mark *mark,
                          uint64_t now_ns) {
    if (!mark || mark->stands_for == 0 || in_stream_of(meter, mark) < 2)
        return 0;
    uint64_t each_ns = executed_ns(meter, mark, now_ns) / mark->stands_for;
    return each_ns > meter->average_ns ? each_ns - meter->average_ns : 0;
}

uint64_t plimsoll_each_ns(const struct plimsoll_meter *meter, uint64_t now_ns) {
    return meter->average_ns + longer_ns(meter, executing(meter), now_ns);
}

static bool is_overdue(const struct plimsoll_meter *meter, const struct plimsoll_mark *mark,
                       uint64_t now_ns) {
    return executed_ns(meter, mark, now_ns) > 2 * mark->stands_for * meter->average_ns + LATE_NS;
}

/* The time since the last mark was the foremost launches' alone: those that wait have had none of it. */
uint64_t plimsoll_left_ns(const struct plimsoll_meter *meter, uint64_t now_ns) {
    const struct plimsoll_mark *mark = executing(meter);
    uint64_t longer = longer_ns(meter, mark, now_ns), waiting = 0;
    for (unsigned i = 0; i < meter->mark_count; i++)
        waiting += &meter->marks[i] == mark ? 0 : meter->marks[i].stands_for;
    for (unsigned i = 0; i < meter->stream_count; i++)
        waiting += meter->streams[i].tail;
    if (!mark)
        return waiting * meter->average_ns;
    uint64_t foremost_ns = mark->stands_for * meter->average_ns, ran_ns = since_ns(meter, mark, now_ns);
    return waiting * meter->average_ns + (in_stream_of(meter, mark) - mark->stands_for) * longer +
           (ran_ns < foremost_ns ? foremost_ns - ran_ns : 0);
}

bool plimsoll_is_known(const struct plimsoll_meter *meter, uint64_t now_ns) {
    const struct plimsoll_mark *mark = executing(meter);
    if (meter->learned < SURE)
        return plimsoll_outstanding(meter) == 0;
    return !mark || in_stream_of(meter, mark) < FEW || !is_overdue(meter, mark, now_ns);
}

/* Behind the beginning of a segment that is blocked. */
static bool is_held_up(const struct plimsoll_meter *meter, unsigned index) {
    for (unsigned i = 0; i < index; i++)
        if (meter->marks[i].stream == meter->marks[index].stream && meter->marks[i].is_blocked)
            return true;
    return false;
}

unsigned plimsoll_runnable(const struct plimsoll_meter *meter) {
    unsigned sum = 0;
    for (unsigned i = 0; i < meter->mark_count; i++)
        if (!is_held_up(meter, i))
            sum += meter->marks[i].launches;
    return sum;
}

unsigned plimsoll_outstanding(const struct plimsoll_meter *meter) {
    unsigned sum = 0;
    for (unsigned i = 0; i < meter->mark_count; i++)
        sum += meter->marks[i].launches;
    for (unsigned i = 0; i < meter->stream_count; i++)
        sum += meter->streams[i].tail;
    return sum;
}

bool plimsoll_has_work(void) {
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        if (meter->context && (meter->mark_count > 0 || plimsoll_outstanding(meter) > 0))
            return true;
    return false;
}

uint64_t plimsoll_queued_ns(int gpu) {
    uint64_t sum_ns = 0;
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        if (meter->context && meter->gpu == gpu)
            sum_ns += plimsoll_outstanding(meter) * meter->average_ns;
    return sum_ns;
}

/* --- events ----------------------------------------------------------------------------------------------
 */

void plimsoll_spare(struct plimsoll_meter *meter, CUevent event) {
    if (event && meter->spare_count < sizeof(meter->spares) / sizeof(meter->spares[0]))
        meter->spares[meter->spare_count++] = event;
}

/* An event belongs to the context that is current when it is made, and the stream's may be another. */
static CUevent make_event(uint64_t context) {
    CUevent event = NULL;
    CUcontext popped, of = (CUcontext)(uintptr_t)context; // NOLINT
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (CALLED(cuCtxPushCurrent_v2)(of) != CUDA_SUCCESS)
        return NULL;
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    if (CALLED(cuEventCreate)(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        event = NULL;
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    CALLED(cuCtxPopCurrent_v2)(&popped);
    return event;
}

CUevent plimsoll_event_take(struct plimsoll_meter *meter) {
    pthread_mutex_lock(&SHARES->lock);
    CUevent event = meter->spare_count > 0 ? meter->spares[--meter->spare_count] : NULL;
    uint64_t context = meter->context;
    pthread_mutex_unlock(&SHARES->lock);
    return event || context == 0 ? event : make_event(context);
}

/* --- contexts that end -----------------------------------------------------------------------------------
 */

/* Nobody else uses the meter any more. Not every end that is announced comes (a primary context is released
 * many times), so its events are given back and not left to the driver. */
static void destroy_events(const struct plimsoll_meter *of) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    for (unsigned i = 0; i < of->spare_count; i++)
        CALLED(cuEventDestroy_v2)(of->spares[i]);
    for (unsigned i = 0; i < of->mark_count; i++)
        CALLED(cuEventDestroy_v2)(of->marks[i].event);
    if (of->anchor)
        CALLED(cuEventDestroy_v2)(of->anchor);
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
}

/* Under the lock, which it lets go of while it waits. A meter that is still used then is left as it is,
 * without a context: its users find that out. */
static void await_users(struct plimsoll_meter *meter) {
    for (long waited_ns = 0; meter->users > 0 && waited_ns < PATIENCE_NS; waited_ns += STEP_NS) {
        struct timespec step = {.tv_nsec = STEP_NS};
        pthread_mutex_unlock(&SHARES->lock);
        nanosleep(&step, NULL);
        pthread_mutex_lock(&SHARES->lock);
    }
}

static struct plimsoll_meter *find(uint64_t context) {
    struct plimsoll_meter *meter = SHARES->meters;
    while (meter && meter->context != context)
        meter = meter->next;
    return meter;
}

/* Under the lock, which it lets go of while the driver is called. */
static void take_apart(struct plimsoll_meter *meter, bool has_events) {
    meter->context = 0;
    await_users(meter);
    meter->launching = meter->stream_count = 0;
    meter->life = ++SHARES->serial;
    if (has_events && meter->users == 0) {
        meter->users = 1;
        pthread_mutex_unlock(&SHARES->lock);
        destroy_events(meter);
        pthread_mutex_lock(&SHARES->lock);
        meter->users = 0;
    }
    meter->mark_count = meter->spare_count = 0;
    meter->anchor = NULL;
    plimsoll_burst_settle(meter->gpu, plimsoll_now_ns());
}

static void look_at(uint64_t context) {
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = find(context);
    pthread_mutex_unlock(&SHARES->lock);
    if (meter)
        plimsoll_look_at(meter);
}

/* Returns its GPU if it has work under way, else -1. */
static int end_meter(uint64_t context, bool has_events) {
    int gpu = -1;
    if (!plimsoll_has_gate() || context == 0)
        return gpu;
    int cancelling = plimsoll_hold_thread();
    plimsoll_depth++;
    if (has_events)
        look_at(context);
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = find(context);
    if (meter && has_events && SHARES->is_metering && plimsoll_executes(meter)) {
        gpu = meter->gpu;
        SHARES->bursts[gpu].ending++;
    }
    if (meter)
        take_apart(meter, has_events);
    pthread_mutex_unlock(&SHARES->lock);
    plimsoll_depth--;
    plimsoll_release_thread(cancelling);
    return gpu;
}

int plimsoll_bursts_forget(uint64_t context) {
    return end_meter(context, true);
}

void plimsoll_bursts_forgotten(int gpu) {
    if (gpu < 0)
        return;
    int cancelling = plimsoll_hold_thread();
    pthread_mutex_lock(&SHARES->lock);
    uint64_t now_ns = plimsoll_now_ns();
    SHARES->bursts[gpu].ending--;
    plimsoll_burst_ended(gpu, now_ns);
    plimsoll_burst_settle(gpu, now_ns);
    pthread_mutex_unlock(&SHARES->lock);
    plimsoll_release_thread(cancelling);
}

void plimsoll_bursts_lost(uint64_t context) {
    end_meter(context, false);
}

void plimsoll_bursts_resume(uint64_t context, int gpu) {
    if (!plimsoll_has_gate() || context == 0 || gpu < 0)
        return;
    int cancelling = plimsoll_hold_thread();
    pthread_mutex_lock(&SHARES->lock);
    uint64_t now_ns = plimsoll_now_ns();
    struct plimsoll_meter *meter = SHARES->is_metering ? plimsoll_meter_of(context, gpu) : NULL;
    if (meter) {
        plimsoll_burst_launched(gpu, now_ns);
        plimsoll_burst_executed(gpu, now_ns);
        plimsoll_mark_context(meter);
        plimsoll_burst_settle(gpu, now_ns);
    }
    pthread_mutex_unlock(&SHARES->lock);
    plimsoll_keeper_stir();
    plimsoll_release_thread(cancelling);
}

/* What the parent had under way, and its keeper, are not the child's. Its meters' memory is left alone. */
void plimsoll_shares_in_child(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    uint32_t passes_left = SHARES->passes_left;
    memset(SHARES, 0, sizeof(*SHARES));
    SHARES->lock = fresh;
    SHARES->slower = 1;
    SHARES->passes_left = passes_left;
}
