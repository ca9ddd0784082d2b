/* Which meter is whose, from a context's making to its end. Its events end before it does, as the driver
 * frees them with it: a question about one after that would be about memory that is somebody else's.
 */
#include "meters.h"

#include <string.h>
#include <time.h>

#include "bursts.h"
#include "driver.h"
#include "gate.h"
#include "reports.h"

#define PATIENCE_NS 1000000000 /* for who is in a driver call with a context that is about to end */
#define STEP_NS 50000

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

struct plimsoll_meter *plimsoll_meter_of(uint64_t context) {
    struct plimsoll_meter *vacant = NULL;
    for (int i = 0; i < PLIMSOLL_METERS; i++) {
        struct plimsoll_meter *meter = &SHARES->meters[i];
        if (meter->context == context)
            return meter;
        if (!vacant && meter->context == 0 && meter->users == 0)
            vacant = meter;
    }
    if (vacant) {
        memset(vacant, 0, sizeof(*vacant));
        vacant->context = context;
        vacant->life = ++SHARES->serial;
        vacant->epoch = SHARES->epoch - 1; /* what it was given so far is not known */
    }
    return vacant;
}

static void add(uint64_t context, bool is_new) {
    if (!plimsoll_has_gate() || context == 0)
        return;
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = plimsoll_meter_of(context);
    if (meter && is_new)
        meter->epoch = SHARES->epoch;
    pthread_mutex_unlock(&SHARES->lock);
}

void plimsoll_meters_add(uint64_t context) {
    add(context, true);
}

void plimsoll_meters_keep(uint64_t context) {
    add(context, false);
}

struct plimsoll_tail *plimsoll_tail_of(struct plimsoll_meter *meter, uint64_t stream) {
    for (unsigned i = 0; i < meter->tail_count; i++)
        if (meter->tails[i].stream == stream)
            return &meter->tails[i];
    return NULL;
}

struct plimsoll_tail plimsoll_tail_take(struct plimsoll_meter *meter, uint64_t stream) {
    struct plimsoll_tail *tail = plimsoll_tail_of(meter, stream), taken = {.stream = stream};
    if (tail) {
        taken = *tail;
        *tail = meter->tails[--meter->tail_count];
    }
    return taken;
}

static void join(struct plimsoll_tail *tail, const struct plimsoll_tail *more) {
    if (tail->launches == 0 || more->entered_ns < tail->entered_ns)
        tail->entered_ns = more->entered_ns;
    tail->launches += more->launches;
}

bool plimsoll_tail_add(struct plimsoll_meter *meter, const struct plimsoll_tail *more) {
    struct plimsoll_tail *tail = plimsoll_tail_of(meter, more->stream);
    if (!tail && meter->tail_count < PLIMSOLL_TAILS) {
        tail = &meter->tails[meter->tail_count++];
        *tail = (struct plimsoll_tail){.stream = more->stream};
    }
    if (tail)
        join(tail, more);
    return tail != NULL;
}

struct plimsoll_tail plimsoll_tail_sum(const struct plimsoll_meter *meter) {
    struct plimsoll_tail sum = {.stream = PLIMSOLL_WHOLE_CONTEXT};
    for (unsigned i = 0; i < meter->tail_count; i++)
        join(&sum, &meter->tails[i]);
    return sum;
}

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

/* The copy's events are nobody's any more. Not every end that is announced comes (a primary context is
 * released many times), so they are given back and not left to the driver. */
static void destroy_events(const struct plimsoll_meter *of) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    for (unsigned i = 0; i < of->spare_count; i++)
        CALLED(cuEventDestroy_v2)(of->spares[i]);
    for (unsigned i = 0; i < of->mark_count; i++)
        CALLED(cuEventDestroy_v2)(of->marks[i].event);
    if (of->start)
        CALLED(cuEventDestroy_v2)(of->start);
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
}

static struct plimsoll_meter *find(uint64_t context) {
    for (int i = 0; i < PLIMSOLL_METERS; i++)
        if (SHARES->meters[i].context == context)
            return &SHARES->meters[i];
    return NULL;
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

void plimsoll_bursts_forget(uint64_t context) {
    struct plimsoll_meter ended = {0};
    if (!plimsoll_has_gate() || context == 0)
        return;
    int cancelling = plimsoll_hold_thread();
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = find(context);
    if (meter) {
        SHARES->epoch +=
            meter->is_under_way; /* where the context lives on after all, the keeper asks after it */
        meter->context = 0;
        await_users(meter);
        plimsoll_burst_abandon(meter);
        if (meter->users == 0)
            ended = *meter;
        meter->mark_count = meter->spare_count = meter->tail_count = meter->outstanding = 0;
        meter->start = NULL;
        meter->life = ++SHARES->serial;
    }
    pthread_mutex_unlock(&SHARES->lock);
    plimsoll_depth++;
    destroy_events(&ended);
    plimsoll_depth--;
    plimsoll_release_thread(cancelling);
}

/* What the parent had under way, and its helper, are not the child's. */
void plimsoll_shares_in_child(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    plimsoll_report_forget();
    memset(SHARES, 0, sizeof(*SHARES));
    SHARES->lock = SHARES->report_lock = fresh;
    SHARES->connection = -1;
    SHARES->seen_word = __atomic_load_n(plimsoll.gate_word, __ATOMIC_RELAXED);
}
