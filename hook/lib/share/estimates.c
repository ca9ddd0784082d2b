#include "share/estimates.h"

#include "clock.h"
#include "share/gate.h"

#define SHARES (&plimsoll.shares)

/* A launch is overdue when it takes longer than twice its expected time and this. */
#define LATE_NS 20000

/* While the first of this many launches takes longer than earlier ones did, nothing shows how long the last
 * will take. */
#define FEW 16

/* An average of fewer marks may be far off, because the first marks are dated with the least certainty. Until
 * then no more launches are queued than marks were learned from, and one: a server whose requests have two
 * launches is slow at its first request alone. */
#define SURE 4

/* The oldest mark behind launches that execute now, or seem to: a poll may not have seen the beginning of
 * their segment yet. NULL for none. */
static const struct plimsoll_mark *executing(const struct plimsoll_meter *meter) {
    for (unsigned i = 0; i < meter->mark_count; i++) {
        bool seems_to = !meter->marks[i].is_begin;
        for (unsigned j = 0; j < i; j++)
            if (meter->marks[j].stream == meter->marks[i].stream)
                seems_to &= meter->marks[j].is_begin && !meter->marks[j].is_blocked;
        if (seems_to)
            return &meter->marks[i];
    }
    return NULL;
}

/* The time for which the launches before a mark can have executed. */
static uint64_t since_ns(const struct plimsoll_meter *meter, const struct plimsoll_mark *mark,
                         uint64_t now_ns) {
    uint64_t from_ns = plimsoll_later(meter->reached_ns, mark->entered_ns);
    return now_ns > from_ns ? now_ns - from_ns : 0;
}

static uint64_t executed_ns(const struct plimsoll_meter *meter, const struct plimsoll_mark *mark,
                            uint64_t now_ns) {
    return since_ns(meter, mark, now_ns) / plimsoll_gate_sharers();
}

/* The launches in the stream of a mark. They will take as long as the launches before the mark. */
static unsigned in_stream_of(const struct plimsoll_meter *meter, const struct plimsoll_mark *mark) {
    unsigned sum = 0;
    for (unsigned i = 0; i < meter->mark_count; i++)
        if (meter->marks[i].stream == mark->stream)
            sum += meter->marks[i].stands_for;
    for (unsigned i = 0; i < meter->stream_count; i++)
        if (meter->streams[i].key == mark->stream || mark->stream == PLIMSOLL_WHOLE_CONTEXT)
            sum += meter->streams[i].tail;
    return sum;
}

/* The time by which the executing launches are longer than the average. A single launch with nothing behind
 * it, such as a kernel that spins, shows nothing about other launches. */
static uint64_t longer_ns(const struct plimsoll_meter *meter, const struct plimsoll_mark *mark,
                          uint64_t now_ns) {
    if (!mark || mark->stands_for == 0 || in_stream_of(meter, mark) < 2)
        return 0;
    uint64_t each_ns = executed_ns(meter, mark, now_ns) / mark->stands_for;
    return each_ns > meter->average_ns ? each_ns - meter->average_ns : 0;
}

uint64_t plimsoll_each_ns(const struct plimsoll_meter *meter, uint64_t now_ns) {
    return meter->average_ns + longer_ns(meter, executing(meter), now_ns);
}

static bool is_overdue(const struct plimsoll_meter *meter, const struct plimsoll_mark *mark,
                       uint64_t now_ns) {
    return executed_ns(meter, mark, now_ns) > 2 * mark->stands_for * meter->average_ns + LATE_NS;
}

/* The time since the last reached mark belongs to the foremost launches alone. Launches that wait had none of
 * it. */
uint64_t plimsoll_left_ns(const struct plimsoll_meter *meter, uint64_t now_ns) {
    const struct plimsoll_mark *mark = executing(meter);
    uint64_t longer = longer_ns(meter, mark, now_ns), waiting = 0;
    for (unsigned i = 0; i < meter->mark_count; i++)
        waiting += &meter->marks[i] == mark ? 0 : meter->marks[i].stands_for;
    for (unsigned i = 0; i < meter->stream_count; i++)
        waiting += meter->streams[i].tail;
    if (!mark)
        return waiting * meter->average_ns;
    uint64_t foremost_ns = mark->stands_for * meter->average_ns, ran_ns = since_ns(meter, mark, now_ns);
    return waiting * meter->average_ns + (in_stream_of(meter, mark) - mark->stands_for) * longer +
           (ran_ns < foremost_ns ? foremost_ns - ran_ns : 0);
}

bool plimsoll_is_known(const struct plimsoll_meter *meter, uint64_t now_ns) {
    const struct plimsoll_mark *mark = executing(meter);
    if (meter->learned < SURE)
        return plimsoll_outstanding(meter) <= meter->learned;
    return !mark || in_stream_of(meter, mark) < FEW || !is_overdue(meter, mark, now_ns);
}

/* Whether a mark is behind the beginning of a blocked segment. */
static bool is_held_up(const struct plimsoll_meter *meter, unsigned index) {
    for (unsigned i = 0; i < index; i++)
        if (meter->marks[i].stream == meter->marks[index].stream && meter->marks[i].is_blocked)
            return true;
    return false;
}

unsigned plimsoll_runnable(const struct plimsoll_meter *meter) {
    unsigned sum = 0;
    for (unsigned i = 0; i < meter->mark_count; i++)
        if (!is_held_up(meter, i))
            sum += meter->marks[i].launches;
    return sum;
}

unsigned plimsoll_outstanding(const struct plimsoll_meter *meter) {
    unsigned sum = 0;
    for (unsigned i = 0; i < meter->mark_count; i++)
        sum += meter->marks[i].launches;
    for (unsigned i = 0; i < meter->stream_count; i++)
        sum += meter->streams[i].tail;
    return sum;
}

bool plimsoll_has_work(void) {
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        if (meter->context && (meter->mark_count > 0 || plimsoll_outstanding(meter) > 0))
            return true;
    return false;
}

uint64_t plimsoll_queued_ns(int gpu) {
    uint64_t sum_ns = 0;
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        if (meter->context && meter->gpu == gpu)
            sum_ns += plimsoll_outstanding(meter) * meter->average_ns;
    return sum_ns;
}
