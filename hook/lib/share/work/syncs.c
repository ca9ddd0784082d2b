/* The program's calls that wait for work or block a stream. Before such a call the ends of work get events.
 * After the call the events are polled. */
#include <errno.h>

#include "driver/gpus.h"
#include "memory/current.h"
#include "share/captures.h"
#include "share/work/meters.h"

#define SHARES (&plimsoll.shares)

/* --- tails -----------------------------------------------------------------------------------------------
 */

/* In any context. */
static bool has_tail(CUstream handle) {
    uint64_t key = plimsoll_stream_key(handle);
    bool is_found = false;
    pthread_mutex_lock(&SHARES->lock);
    for (struct plimsoll_meter *meter = SHARES->meters; meter && !is_found; meter = meter->next) {
        const struct plimsoll_stream *stream = meter->context ? plimsoll_stream_in(meter, key) : NULL;
        is_found = stream && stream->tail > 0;
    }
    pthread_mutex_unlock(&SHARES->lock);
    return is_found;
}

static void record_tail(CUstream handle) {
    uint64_t context;
    int gpu = plimsoll_gpu_of_stream(handle, &context);
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = plimsoll_sound_meter_of(context, gpu);
    struct plimsoll_stream *stream = meter ? plimsoll_stream_in(meter, plimsoll_stream_key(handle)) : NULL;
    if (stream && stream->tail > 0 && meter->events.count < PLIMSOLL_EVENTS)
        plimsoll_record_behind(meter, handle);
    pthread_mutex_unlock(&SHARES->lock);
}

/* An event in the legacy stream would break the captures of all streams that are ordered with it, and the
 * program may wait for something while a capture is under way. The first query about a thread's own default
 * stream creates that stream. */
void plimsoll_see_to_tail(CUstream stream) {
    bool is_legacy = stream == NULL || stream == CU_STREAM_LEGACY;
    if (!has_tail(stream) || plimsoll_is_capturing(stream) || (is_legacy && !plimsoll_begin_query()))
        return;
    record_tail(stream);
    if (is_legacy)
        plimsoll_end_query();
}

/* --- the calls -------------------------------------------------------------------------------------------
 */

/* Our work in a thread of the program, which must not notice it: these values are restored at the end. */
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
    return plimsoll_depth == 0 && __atomic_load_n(&SHARES->is_metering, __ATOMIC_RELAXED);
}

void plimsoll_before_sync(CUstream stream) {
    if (!is_metered())
        return;
    struct errand errand = begin_errand();
    plimsoll_see_to_tail(stream);
    end_errand(&errand);
}

/* Some of the program's own streams may be destroyed. The context exists, and so do the default streams. */
void plimsoll_before_sync_context(void) {
    if (!is_metered())
        return;
    struct errand errand = begin_errand();
    plimsoll_see_to_tail(NULL);
    plimsoll_see_to_tail(CU_STREAM_PER_THREAD);
    uint64_t context = plimsoll_current_context();
    int gpu = plimsoll_gpu_of_current_context(context);
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = plimsoll_sound_meter_of(context, gpu);
    for (unsigned i = 0; meter && i < meter->streams.count; i++)
        if (meter->streams.at[i].tail > 0) {
            plimsoll_record_context(meter);
            break;
        }
    pthread_mutex_unlock(&SHARES->lock);
    end_errand(&errand);
}

void plimsoll_after_sync(void) {
    if (!is_metered())
        return;
    struct errand errand = begin_errand();
    plimsoll_poll(true);
    end_errand(&errand);
}

static void block(CUstream handle) {
    uint64_t context;
    int gpu = plimsoll_gpu_of_stream(handle, &context);
    plimsoll_see_to_tail(handle);
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = plimsoll_sound_meter_of(context, gpu);
    struct plimsoll_stream *stream = meter ? plimsoll_stream_for(meter, plimsoll_stream_key(handle)) : NULL;
    if (stream) {
        stream->is_open = false;
        stream->is_blocked = true;
    }
    pthread_mutex_unlock(&SHARES->lock);
}

void plimsoll_before_block(CUstream stream) {
    if (plimsoll_depth > 0 || !plimsoll_is_attached() || plimsoll_is_capturing(stream))
        return;
    struct errand errand = begin_errand();
    block(stream);
    end_errand(&errand);
}
