/* Events are dated by the GPU's clock, as the time since an anchor: an event that was reached earlier. The
 * anchor's own time on the host's clock is known only within bounds. An event was not reached before it was
 * recorded. An event that a poll found reached was not reached after that query. The latest possible time is
 * used: one of many polls comes right after the end of some work, whereas the recording of an event behind
 * long kernels bounds little.
 */
#include "clock.h"
#include "share/gate.h"
#include "share/work/meters.h"

/* The clocks of GPU and host drift apart by at most this part of the time, 61 ppm. */
#define DRIFT_SHIFT 14

/* The driver gives times as floats. Beyond this span they are coarser than two microseconds. */
#define ANCHORED_NS 16000000000

/* An event that was reached within this time of its recording had nothing before it. */
#define AT_ONCE_NS 2000

/* Corrects the anchor's time within its bounds. This function and all below need the lock. */
static void narrow(struct plimsoll_meter *meter, const struct plimsoll_poll *poll) {
    if (!meter->anchor.event && poll->anchor) {
        meter->anchor.event = poll->anchor;
        meter->anchor.at_ns = meter->anchor.narrowed_ns = poll->seen_ns;
    }
    meter->anchor.at_ns += (poll->seen_ns - meter->anchor.narrowed_ns) >> DRIFT_SHIFT;
    meter->anchor.narrowed_ns = poll->seen_ns;
    for (unsigned i = 0; i < poll->count; i++) {
        if (!poll->is_reached[i])
            continue;
        int64_t since_ns = poll->since_anchor_ns[i], now_ns = (int64_t)meter->anchor.at_ns;
        int64_t least_ns = (int64_t)meter->events.at[i].recorded_ns - since_ns;
        int64_t most_ns = (int64_t)poll->reached_by_ns[i] - since_ns;
        meter->anchor.at_ns = (uint64_t)(now_ns < least_ns ? least_ns : now_ns > most_ns ? most_ns : now_ns);
    }
}

static uint64_t distance(uint64_t one, uint64_t other) {
    return one > other ? one - other : other - one;
}

/* The part of a stretch of time in which this process itself executed. Within one slice that is the whole
 * stretch. A longer stretch was shared all the time, or was interrupted once by a slice of each other
 * process. The result is the alternative nearest to the expected time. */
static uint64_t executed_of(uint64_t stretch_ns, uint64_t expected_ns) {
    uint64_t slice_ns = plimsoll_gate_slice_ns(), sharers = plimsoll_gate_sharers();
    uint64_t rounds = stretch_ns / (sharers * slice_ns) + 1, others_ns = rounds * (sharers - 1) * slice_ns;
    uint64_t part_ns = stretch_ns / sharers;
    uint64_t cut_ns = stretch_ns > others_ns ? stretch_ns - others_ns : 0;
    if (stretch_ns <= slice_ns || sharers == 1 || expected_ns == 0)
        return stretch_ns <= slice_ns ? stretch_ns : part_ns;
    bool is_cut = cut_ns > 0 && distance(cut_ns, expected_ns) < distance(part_ns, expected_ns);
    uint64_t nearest_ns = is_cut ? cut_ns : part_ns;
    return distance(stretch_ns, expected_ns) < distance(nearest_ns, expected_ns) ? stretch_ns : nearest_ns;
}

/* Shorter launches change the average faster than longer ones. A long launch may have waited for something,
 * or other processes' slices may have interrupted it. A launch that really is long becomes overdue, and is
 * known by that. */
static void learn(struct plimsoll_meter *meter, const struct plimsoll_event *event, uint64_t at_ns) {
    uint64_t from_ns = plimsoll_later(meter->pace.reached_ns, event->entered_ns);
    if (event->launches == 0 || at_ns <= from_ns)
        return;
    uint64_t each_ns =
        executed_of(at_ns - from_ns, event->launches * meter->pace.average_ns) / event->launches;
    each_ns = each_ns ? each_ns : 1;
    meter->pace.learned++;
    if (meter->pace.average_ns == 0)
        meter->pace.average_ns = each_ns;
    else if (each_ns > meter->pace.average_ns)
        meter->pace.average_ns += (each_ns - meter->pace.average_ns) / 8 + 1;
    else
        meter->pace.average_ns -= (meter->pace.average_ns - each_ns) / 2;
}

/* A reached event becomes the anchor when the old anchor is too far back. */
static void spare_or_anchor(struct plimsoll_meter *meter, CUevent event, uint64_t at_ns) {
    if (event == meter->anchor.event)
        return;
    if (at_ns > meter->anchor.at_ns + ANCHORED_NS) {
        plimsoll_event_spare(meter, meter->anchor.event);
        meter->anchor.event = event;
        meter->anchor.at_ns = at_ns;
        return;
    }
    plimsoll_event_spare(meter, event);
}

static void remove_event(struct plimsoll_meter *meter, unsigned index) {
    struct plimsoll_poll *poll = &meter->poll;
    meter->events.count--;
    poll->count--;
    for (unsigned i = index; i < meter->events.count; i++)
        meter->events.at[i] = meter->events.at[i + 1];
    for (unsigned i = index; i < poll->count; i++) {
        poll->is_reached[i] = poll->is_reached[i + 1];
        poll->since_anchor_ns[i] = poll->since_anchor_ns[i + 1];
    }
}

/* An event that was reached as soon as it was recorded came late: the work before it had ended by then, at
 * its expected time. In an idle stream, a launch comes later than the event at the beginning. */
static uint64_t moment_behind(const struct plimsoll_meter *meter, const struct plimsoll_event *event,
                              uint64_t at_ns) {
    bool is_late = event->due_ns && event->due_ns < at_ns && at_ns < event->recorded_ns + AT_ONCE_NS;
    if (event->is_begin)
        return plimsoll_later(at_ns, event->entered_ns);
    return is_late ? plimsoll_later(event->due_ns, meter->pace.reached_ns) : at_ns;
}

/* The time when the first launch of a segment, which ended at `at_ns`, began to execute. Beside other
 * processes the launch first waited for this process's slice. A short launch waited for the time by which it
 * took longer than usual. A long one waited for half a round of slices. */
static uint64_t begin_of(const struct plimsoll_meter *meter, const struct plimsoll_event *event,
                         uint64_t at_ns) {
    uint64_t from_ns = event->entered_ns, slice_ns = plimsoll_gate_slice_ns();
    uint64_t stretch_ns = at_ns > from_ns ? at_ns - from_ns : 0, usual_ns = meter->pace.average_ns;
    if (plimsoll_gate_sharers() == 1 || usual_ns == 0 || stretch_ns <= usual_ns)
        return from_ns;
    if (usual_ns > slice_ns)
        return from_ns + plimsoll_sooner(plimsoll_first_wait_ns(), stretch_ns - usual_ns);
    return stretch_ns <= 2 * usual_ns ? from_ns : at_ns - usual_ns;
}

static void retire(struct plimsoll_meter *meter, const struct plimsoll_event *event, uint64_t at_ns) {
    at_ns = moment_behind(meter, event, at_ns);
    if (event->is_begin || event->is_first)
        plimsoll_burst_executed(meter->gpu, event->is_begin ? at_ns : begin_of(meter, event, at_ns));
    if (!event->is_begin)
        plimsoll_burst_ended(meter->gpu, at_ns);
    learn(meter, event, at_ns);
    meter->pace.reached_ns = plimsoll_later(meter->pace.reached_ns, at_ns);
    plimsoll_close_segments(meter);
    plimsoll_burst_settle(meter->gpu, at_ns);
}

/* The earliest reached event whose result was not used yet; -1 for none. */
static int earliest(const struct plimsoll_poll *poll) {
    int found = -1;
    for (unsigned i = 0; i < poll->count; i++)
        if (poll->is_reached[i] && (found < 0 || poll->since_anchor_ns[i] < poll->since_anchor_ns[found]))
            found = (int)i;
    return found;
}

/* Uses the results in the order in which the events were reached, so that a burst ends before the next one
 * begins. */
void plimsoll_take_in(struct plimsoll_meter *meter) {
    struct plimsoll_poll *poll = &meter->poll;
    int index;
    narrow(meter, poll);
    uint64_t anchor_ns = meter->anchor.at_ns; /* the meter may get another anchor below */
    while ((index = earliest(poll)) >= 0) {
        int64_t at_ns = (int64_t)anchor_ns + poll->since_anchor_ns[index];
        struct plimsoll_event event = meter->events.at[index];
        remove_event(meter, (unsigned)index);
        retire(meter, &event, plimsoll_sooner(at_ns < 0 ? 0 : (uint64_t)at_ns, poll->seen_ns));
        spare_or_anchor(meter, event.handle, at_ns < 0 ? 0 : (uint64_t)at_ns);
    }
}
