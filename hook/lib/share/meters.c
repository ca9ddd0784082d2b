/* Each context has a meter from its first launch to its end. A meter's events end before the context does,
 * because the driver frees them with the context. A later query about one of them would read memory of
 * somebody else. */
#include "share/meters.h"

#include <string.h>
#include <sys/mman.h>

#include "driver/driver.h"

#define SHARES (&plimsoll.shares)

/* Before glibc 2.34 pthread_setcancelstate writes no old state in a program without threads. */
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

/* The memory comes from the kernel, because a hook must not depend on the program's malloc. */
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
        /* `next` stays, because other threads may be walking along the list */
        memset(&meter->context, 0, sizeof(*meter) - offsetof(struct plimsoll_meter, context));
        meter->context = context;
        meter->gpu = gpu;
        meter->life = ++SHARES->serial;
    }
    return meter;
}

/* A program's call with a stream of another context, or of a broken one, needs no meter. */
struct plimsoll_meter *plimsoll_sound_meter_of(uint64_t context, int gpu) {
    struct plimsoll_meter *meter = context && gpu >= 0 ? plimsoll_meter_of(context, gpu) : NULL;
    return meter && !meter->is_broken ? meter : NULL;
}

struct plimsoll_stream *plimsoll_stream_in(struct plimsoll_meter *meter, uint64_t key) {
    for (unsigned i = 0; i < meter->stream_count; i++)
        if (meter->streams[i].key == key)
            return &meter->streams[i];
    return NULL;
}

/* A stream that was blocked, and got no launch since. The library cannot know whether it is still blocked. */
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

bool plimsoll_has_mark(const struct plimsoll_meter *meter, uint64_t key) {
    for (unsigned i = 0; i < meter->mark_count; i++)
        if (meter->marks[i].stream == key)
            return true;
    return false;
}

/* --- events ----------------------------------------------------------------------------------------------
 */

void plimsoll_spare(struct plimsoll_meter *meter, CUevent event) {
    if (event && meter->spare_count < sizeof(meter->spares) / sizeof(meter->spares[0]))
        meter->spares[meter->spare_count++] = event;
}

/* An event belongs to the context that is current when the event is made. The stream's context may be another
 * one. */
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

/* The parent's unfinished work and its keeper do not exist in the child. The memory of the meters is left
 * alone. */
void plimsoll_shares_in_child(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    uint32_t passes_left = SHARES->passes_left;
    memset(SHARES, 0, sizeof(*SHARES));
    SHARES->lock = fresh;
    SHARES->slower = 1;
    SHARES->passes_left = passes_left;
}
