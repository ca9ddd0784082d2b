#include "share/syncing.h"

#include <errno.h>

#include "driver/gpus.h"
#include "memory/current.h"
#include "share/marks.h"
#include "share/meters.h"
#include "share/polls.h"
#include "share/tails.h"

#define SHARES (&plimsoll.shares)

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
    for (unsigned i = 0; meter && i < meter->stream_count; i++)
        if (meter->streams[i].tail > 0) {
            plimsoll_mark_context(meter);
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
