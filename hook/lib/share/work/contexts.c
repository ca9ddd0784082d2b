/* Contexts that end, with or without a hooked call. Their meters end before them. */
#include <errno.h>

#include "clock.h"
#include "driver/driver.h"
#include "share/gate.h"
#include "share/work/meters.h"

#define SHARES (&plimsoll.shares)

#define PATIENCE_NS 1000000000 /* for threads inside a driver call with a context that is about to end */

#define STEP_NS 50000 /* between two checks for such threads */

/* No thread but this one uses the meter. A context may survive its announced end, because a primary context
 * is released many times. So the events are destroyed here and not left to the driver. */
static void destroy_events(const struct plimsoll_meter *of) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
    for (unsigned i = 0; i < of->events.spare_count; i++)
        CALLED(cuEventDestroy_v2)(of->events.spares[i]);
    for (unsigned i = 0; i < of->events.count; i++)
        CALLED(cuEventDestroy_v2)(of->events.at[i].handle);
    if (of->anchor.event)
        CALLED(cuEventDestroy_v2)(of->anchor.event);
    CALLED(cuThreadExchangeStreamCaptureMode)(&mode);
}

/* Needs the lock, and releases it while waiting. A meter that still has users after the wait is left without
 * a context, which its users will see. */
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

/* Needs the lock, and releases it during the driver's calls. */
static void take_apart(struct plimsoll_meter *meter, bool has_events) {
    meter->context = 0;
    await_users(meter);
    meter->launching = meter->streams.count = 0;
    meter->life = ++SHARES->serial;
    if (has_events && meter->users == 0) {
        meter->users = 1;
        pthread_mutex_unlock(&SHARES->lock);
        destroy_events(meter);
        pthread_mutex_lock(&SHARES->lock);
        meter->users = 0;
    }
    meter->events.count = meter->events.spare_count = 0;
    meter->anchor.event = NULL;
    plimsoll_burst_settle(meter->gpu, plimsoll_now_ns());
}

static void poll_context(uint64_t context) {
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = find(context);
    pthread_mutex_unlock(&SHARES->lock);
    if (meter)
        plimsoll_poll_meter(meter);
}

/* Returns the context's GPU if the context has work under way, else -1. */
static int end_meter(uint64_t context, bool has_events) {
    int gpu = -1;
    if (!plimsoll_has_gate() || context == 0)
        return gpu;
    int saved = errno, cancelling = plimsoll_hold_thread();
    plimsoll_depth++;
    if (has_events)
        poll_context(context);
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
    errno = saved;
    return gpu;
}

int plimsoll_work_context_ends(uint64_t context) {
    return end_meter(context, true);
}

void plimsoll_work_context_ended(int gpu) {
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

void plimsoll_work_context_lost(uint64_t context) {
    end_meter(context, false);
}

void plimsoll_work_context_stays(uint64_t context, int gpu) {
    if (!plimsoll_has_gate() || context == 0 || gpu < 0)
        return;
    int cancelling = plimsoll_hold_thread();
    pthread_mutex_lock(&SHARES->lock);
    uint64_t now_ns = plimsoll_now_ns();
    struct plimsoll_meter *meter = SHARES->is_metering ? plimsoll_meter_of(context, gpu) : NULL;
    if (meter) {
        plimsoll_burst_launched(gpu, now_ns);
        plimsoll_burst_executed(gpu, now_ns);
        plimsoll_record_context(meter);
        plimsoll_burst_settle(gpu, now_ns);
    }
    pthread_mutex_unlock(&SHARES->lock);
    plimsoll_poller_wake();
    plimsoll_release_thread(cancelling);
}
