/* Each context has a meter from its first launch to its end. A meter's events end before the context does,
 * because the driver frees them with the context. A later query about one of them would read memory of
 * somebody else. */
#include "share/work/meters.h"

#include <string.h>
#include <sys/mman.h>

#define SHARES (&plimsoll.shares)

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
    for (unsigned i = 0; i < meter->streams.count; i++)
        if (meter->streams.at[i].key == key)
            return &meter->streams.at[i];
    return NULL;
}

/* Forgets a stream that has nothing unfinished and is not blocked. */
static void drop_stream(struct plimsoll_meter *meter, struct plimsoll_stream *stream) {
    *stream = meter->streams.at[--meter->streams.count];
}

/* A stream that was blocked, and got no launch since. The library cannot know whether it is still blocked. */
static struct plimsoll_stream *idle_stream(struct plimsoll_meter *meter) {
    for (unsigned i = 0; i < meter->streams.count; i++)
        if (!meter->streams.at[i].is_open && meter->streams.at[i].tail == 0)
            return &meter->streams.at[i];
    return NULL;
}

struct plimsoll_stream *plimsoll_stream_for(struct plimsoll_meter *meter, uint64_t key) {
    struct plimsoll_stream *stream = plimsoll_stream_in(meter, key);
    if (stream)
        return stream;
    if (meter->streams.count == PLIMSOLL_STREAMS && (stream = idle_stream(meter)))
        drop_stream(meter, stream);
    if (meter->streams.count == PLIMSOLL_STREAMS)
        return NULL;
    stream = &meter->streams.at[meter->streams.count++];
    *stream = (struct plimsoll_stream){.key = key};
    return stream;
}

bool plimsoll_has_event(const struct plimsoll_meter *meter, uint64_t key) {
    for (unsigned i = 0; i < meter->events.count; i++)
        if (meter->events.at[i].stream == key)
            return true;
    return false;
}

/* A segment ended where its last event was reached and nothing follows. A launch between its two halves keeps
 * the segment open, because the event at the segment's beginning may have been reached a moment ago. */
void plimsoll_close_segments(struct plimsoll_meter *meter) {
    for (unsigned i = meter->streams.count; i-- > 0;) {
        struct plimsoll_stream *stream = &meter->streams.at[i];
        if (stream->tail > 0 || meter->launching > 0 || plimsoll_has_event(meter, stream->key))
            continue;
        stream->is_open = false;
        if (!stream->is_blocked)
            drop_stream(meter, stream);
    }
}

bool plimsoll_is_foremost(const struct plimsoll_meter *meter, unsigned index) {
    for (unsigned i = 0; i < index; i++)
        if (meter->events.at[i].stream == meter->events.at[index].stream)
            return false;
    return true;
}

/* --- launches that pass a shut gate -----------------------------------------------------------------------
 */

void plimsoll_let_pass(void) {
    for (struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        for (unsigned i = 0; i < meter->events.count; i++)
            meter->events.at[i].lets_pass = plimsoll_is_foremost(meter, i);
}

bool plimsoll_lets_pass(void) {
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        for (unsigned i = 0; i < meter->events.count; i++)
            if (meter->events.at[i].lets_pass)
                return true;
    return false;
}

/* --- the child of a fork ----------------------------------------------------------------------------------
 */

/* The parent's unfinished work and its poller do not exist in the child. The memory of the meters is left
 * alone. */
void plimsoll_shares_in_child(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    uint32_t passes_left = SHARES->samples.passes_left;
    memset(SHARES, 0, sizeof(*SHARES));
    SHARES->lock = fresh;
    SHARES->waits.slower = 1;
    SHARES->samples.passes_left = passes_left;
    plimsoll.captures = (struct plimsoll_captures){0};
}
