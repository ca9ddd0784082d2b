/* Estimates of how much work is queued and how long the work will take. */
#include "clock.h"
#include "share/gate.h"
#include "share/work/meters.h"

#define SHARES (&plimsoll.shares)

/* A launch is overdue when it takes longer than twice its expected time and this. */
#define LATE_NS 20000

/* While the first of this many launches takes longer than earlier ones did, nothing shows how long the last
 * will take. */
#define FEW 16

/* An average of fewer events may be far off, because the first events are dated with the least certainty.
 * Until then no more launches are queued than events were learned from, and one: a server whose requests have
 * two launches is slow at its first request alone. */
#define SURE 4

/* The oldest event behind launches that execute now, or seem to: a poll may not have seen the beginning of
 * their segment yet. NULL for none. */
static const struct plimsoll_event *executing(const struct plimsoll_meter *meter) {
    for (unsigned i = 0; i < meter->events.count; i++) {
        bool seems_to = !meter->events.at[i].is_begin;
        for (unsigned j = 0; j < i; j++)
            if (meter->events.at[j].stream == meter->events.at[i].stream)
                seems_to &= meter->events.at[j].is_begin && !meter->events.at[j].is_blocked;
        if (seems_to)
            return &meter->events.at[i];
    }
    return NULL;
}

/* The time for which the launches before an event can have executed. */
static uint64_t since_ns(const struct plimsoll_meter *meter, const struct plimsoll_event *event,
                         uint64_t now_ns) {
    uint64_t from_ns = plimsoll_later(meter->pace.reached_ns, event->entered_ns);
    return now_ns > from_ns ? now_ns - from_ns : 0;
}

static uint64_t executed_ns(const struct plimsoll_meter *meter, const struct plimsoll_event *event,
                            uint64_t now_ns) {
    return since_ns(meter, event, now_ns) / plimsoll_gate_sharers();
}

/* The launches in the stream of an event. They will take as long as the launches before the event. */
static unsigned in_stream_of(const struct plimsoll_meter *meter, const struct plimsoll_event *event) {
    unsigned sum = 0;
    for (unsigned i = 0; i < meter->events.count; i++)
        if (meter->events.at[i].stream == event->stream)
            sum += meter->events.at[i].stands_for;
    for (unsigned i = 0; i < meter->streams.count; i++)
        if (meter->streams.at[i].key == event->stream || event->stream == PLIMSOLL_WHOLE_CONTEXT)
            sum += meter->streams.at[i].tail;
    return sum;
}

/* The time by which the executing launches are longer than the average. A single launch with nothing behind
 * it, such as a kernel that spins, shows nothing about other launches. */
static uint64_t longer_ns(const struct plimsoll_meter *meter, const struct plimsoll_event *event,
                          uint64_t now_ns) {
    if (!event || event->stands_for == 0 || in_stream_of(meter, event) < 2)
        return 0;
    uint64_t each_ns = executed_ns(meter, event, now_ns) / event->stands_for;
    return each_ns > meter->pace.average_ns ? each_ns - meter->pace.average_ns : 0;
}

uint64_t plimsoll_each_ns(const struct plimsoll_meter *meter, uint64_t now_ns) {
    return meter->pace.average_ns + longer_ns(meter, executing(meter), now_ns);
}

static bool is_overdue(const struct plimsoll_meter *meter, const struct plimsoll_event *event,
                       uint64_t now_ns) {
    return executed_ns(meter, event, now_ns) > 2 * event->stands_for * meter->pace.average_ns + LATE_NS;
}

/* The time since the last reached event belongs to the foremost launches alone. Launches that wait had none
 * of it. */
uint64_t plimsoll_left_ns(const struct plimsoll_meter *meter, uint64_t now_ns) {
    const struct plimsoll_event *event = executing(meter);
    uint64_t longer = longer_ns(meter, event, now_ns), waiting = 0;
    for (unsigned i = 0; i < meter->events.count; i++)
        waiting += &meter->events.at[i] == event ? 0 : meter->events.at[i].stands_for;
    for (unsigned i = 0; i < meter->streams.count; i++)
        waiting += meter->streams.at[i].tail;
    if (!event)
        return waiting * meter->pace.average_ns;
    uint64_t foremost_ns = event->stands_for * meter->pace.average_ns,
             ran_ns = since_ns(meter, event, now_ns);
    return waiting * meter->pace.average_ns + (in_stream_of(meter, event) - event->stands_for) * longer +
           (ran_ns < foremost_ns ? foremost_ns - ran_ns : 0);
}

static bool is_known(const struct plimsoll_meter *meter, uint64_t now_ns) {
    const struct plimsoll_event *event = executing(meter);
    if (meter->pace.learned < SURE)
        return plimsoll_outstanding(meter) <= meter->pace.learned;
    return !event || in_stream_of(meter, event) < FEW || !is_overdue(meter, event, now_ns);
}

/* Whether an event is behind the beginning of a blocked segment. */
static bool is_held_up(const struct plimsoll_meter *meter, unsigned index) {
    for (unsigned i = 0; i < index; i++)
        if (meter->events.at[i].stream == meter->events.at[index].stream && meter->events.at[i].is_blocked)
            return true;
    return false;
}

static unsigned runnable(const struct plimsoll_meter *meter) {
    unsigned sum = 0;
    for (unsigned i = 0; i < meter->events.count; i++)
        if (!is_held_up(meter, i))
            sum += meter->events.at[i].launches;
    return sum;
}

unsigned plimsoll_outstanding(const struct plimsoll_meter *meter) {
    unsigned sum = 0;
    for (unsigned i = 0; i < meter->events.count; i++)
        sum += meter->events.at[i].launches;
    for (unsigned i = 0; i < meter->streams.count; i++)
        sum += meter->streams.at[i].tail;
    return sum;
}

bool plimsoll_has_work(void) {
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        if (meter->context && (meter->events.count > 0 || plimsoll_outstanding(meter) > 0))
            return true;
    return false;
}

uint64_t plimsoll_queued_ns(int gpu) {
    uint64_t sum_ns = 0;
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        if (meter->context && meter->gpu == gpu)
            sum_ns += plimsoll_outstanding(meter) * meter->pace.average_ns;
    return sum_ns;
}

uint64_t plimsoll_runnable_ns(int gpu) {
    uint64_t sum_ns = 0;
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        if (meter->context && meter->gpu == gpu)
            sum_ns += runnable(meter) * meter->pace.average_ns;
    return sum_ns;
}

/* The first few launches are exact while those under way take much longer than earlier ones did. */
uint64_t plimsoll_left_on_ns(int gpu, uint64_t now_ns, uint64_t unknown_ns) {
    uint64_t sum_ns = 0;
    if (!SHARES->bursts[gpu].launched_ns)
        return 0;
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next) {
        if (!meter->context || meter->gpu != gpu)
            continue;
        if (!is_known(meter, now_ns) && !plimsoll_lets_pass())
            return unknown_ns;
        sum_ns += plimsoll_left_ns(meter, now_ns);
    }
    return sum_ns;
}

uint64_t plimsoll_reached_ns(void) {
    uint64_t latest_ns = 0;
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        if (meter->context)
            latest_ns = plimsoll_later(latest_ns, meter->pace.reached_ns);
    return latest_ns;
}
