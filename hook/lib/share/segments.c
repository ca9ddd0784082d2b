#include "share/segments.h"

#include "clock.h"
#include "share/bursts.h"
#include "share/estimates.h"
#include "share/gate.h"
#include "share/marks.h"
#include "share/meters.h"

/* A tail without a mark counts as done this long after its expected end. */
#define TAIL_NS 1000000

/* A segment ended where its last mark was reached and nothing follows. A launch between its two halves keeps
 * the segment open, because the mark at the segment's beginning may have been reached a moment ago. */
void plimsoll_close_segments(struct plimsoll_meter *meter) {
    for (unsigned i = meter->stream_count; i-- > 0;) {
        struct plimsoll_stream *stream = &meter->streams[i];
        if (stream->tail > 0 || meter->launching > 0 || plimsoll_has_mark(meter, stream->key))
            continue;
        stream->is_open = false;
        if (!stream->is_blocked)
            plimsoll_stream_drop(meter, stream);
    }
}

static uint64_t tail_due_ns(const struct plimsoll_meter *meter) {
    uint64_t from_ns = plimsoll_later(meter->reached_ns, meter->entered_ns);
    return from_ns + plimsoll_outstanding(meter) * meter->average_ns * plimsoll_gate_sharers();
}

static bool has_tail(const struct plimsoll_meter *meter) {
    for (unsigned i = 0; i < meter->stream_count; i++)
        if (meter->streams[i].tail > 0 && !plimsoll_has_mark(meter, meter->streams[i].key))
            return true;
    return false;
}

/* Where the driver records no mark behind a tail, the tail counts as done at its expected end. */
static void drop_tails(struct plimsoll_meter *meter, uint64_t due_ns) {
    for (unsigned i = 0; i < meter->stream_count; i++)
        if (!plimsoll_has_mark(meter, meter->streams[i].key))
            meter->streams[i].tail = 0;
    plimsoll_burst_ended(meter->gpu, due_ns);
    plimsoll_close_segments(meter);
    plimsoll_burst_settle(meter->gpu, due_ns);
}

void plimsoll_see_to_tails(struct plimsoll_meter *meter, bool is_end_likely) {
    uint64_t now_ns = plimsoll_now_ns(), due_ns = tail_due_ns(meter);
    if (!meter->context || meter->is_broken || meter->launching > 0 || !has_tail(meter))
        return;
    if (is_end_likely || now_ns > due_ns)
        plimsoll_mark_context(meter);
    if (meter->context && now_ns > due_ns + TAIL_NS && meter->launching == 0 && has_tail(meter))
        drop_tails(meter, due_ns);
}
