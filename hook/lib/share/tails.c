#include "share/tails.h"

#include "driver/gpus.h"
#include "memory/current.h"
#include "share/captures.h"
#include "share/marks.h"
#include "share/meters.h"

#define SHARES (&plimsoll.shares)

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

static void mark_tail(CUstream handle) {
    uint64_t context;
    int gpu = plimsoll_gpu_of_stream(handle, &context);
    pthread_mutex_lock(&SHARES->lock);
    struct plimsoll_meter *meter = plimsoll_sound_meter_of(context, gpu);
    struct plimsoll_stream *stream = meter ? plimsoll_stream_in(meter, plimsoll_stream_key(handle)) : NULL;
    if (stream && stream->tail > 0 && meter->mark_count < PLIMSOLL_MARKS)
        plimsoll_mark_behind(meter, handle);
    pthread_mutex_unlock(&SHARES->lock);
}

/* An event in the legacy stream would break the captures of all streams that are ordered with it, and the
 * program may wait for something while a capture is under way. The first query about a thread's own default
 * stream creates that stream. */
void plimsoll_see_to_tail(CUstream stream) {
    bool is_legacy = stream == NULL || stream == CU_STREAM_LEGACY;
    if (!has_tail(stream) || plimsoll_is_capturing(stream) || (is_legacy && !plimsoll_begin_query()))
        return;
    mark_tail(stream);
    if (is_legacy)
        plimsoll_end_query();
}
