#include "run_ahead.h"

#include "bursts.h"
#include "gate.h"

#define SHARES (&plimsoll.shares)

/* The next launch may be queued when so much of a long one is left: so the GPU does not fall idle in between.
 */
#define AHEAD_PARTS 8
#define SHORTEST_NAP_NS 50000
#define LONGEST_NAP_NS 500000
/* Where many short launches are queued an average may be far off: a graph among kernels counts as one. */
#define LONG_PARTS 4
#define SHORT_NAP_NS 150000
/* What a launch takes may change from one to the next. Once the oldest take twice their time and this much
 * more, nobody knows how long the rest will take, and only a few of them may be queued. */
#define LATE_NS 50000
#define FEW_LAUNCHES 16
/* What is queued may wait, on the device, for this very launch: for a word of memory that a stream or the
 * program writes later, for a host function. So if nothing gets done for this long past its time, one launch
 * goes ahead, and the next after an eighth more of the time that nothing was done. So no program hangs, and a
 * long kernel that nobody foresaw has a few dozen behind it at most. */
#define STALL_NS 100000000
#define STALL_PARTS 8

struct room {
    bool is_there;
    uint64_t nap_ns;
};

static uint64_t run_ahead_ns(void) {
    return (uint64_t)__atomic_load_n(&plimsoll.gate->run_ahead_us, __ATOMIC_RELAXED) * 1000;
}

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most) {
    return value < least ? least : value > most ? most : value;
}

static bool is_stalled(const struct plimsoll_meter *meter, uint64_t due_ns, uint64_t now_ns) {
    uint64_t still_ns = now_ns > meter->ended_ns ? now_ns - meter->ended_ns : 0;
    uint64_t from_ns = due_ns > meter->entered_ns ? due_ns : meter->entered_ns;
    return now_ns > from_ns + STALL_NS + still_ns / STALL_PARTS;
}

/* How late the oldest launches are that an event follows. */
static uint64_t late_ns(const struct plimsoll_meter *meter, uint64_t now_ns) {
    const struct plimsoll_mark *oldest = &meter->marks[0];
    if (meter->mark_count == 0)
        return 0;
    uint64_t from_ns = meter->ended_ns > oldest->entered_ns ? meter->ended_ns : oldest->entered_ns;
    uint64_t due_ns = from_ns + 2 * oldest->launches * meter->average_ns + LATE_NS;
    return now_ns > due_ns ? now_ns - due_ns : 0;
}

static bool has_enough(const struct plimsoll_meter *meter, uint64_t now_ns) {
    return meter->mark_count > PLIMSOLL_MARKS * 3 / 4 || meter->average_ns == 0 ||
           (meter->outstanding + 1) * meter->average_ns > run_ahead_ns() ||
           (meter->outstanding >= FEW_LAUNCHES && late_ns(meter, now_ns) > 0);
}

/* Under the lock. One launch may always be under way; half of what is queued is waited for at once, so that
 * the thread wakes seldom. Never in the driver, as that wait might have no end. */
static struct room find_room(const struct plimsoll_meter *meter, uint64_t now_ns) {
    uint64_t most_ns = run_ahead_ns(), due_ns = plimsoll_burst_due_ns(meter);
    uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : late_ns(meter, now_ns);
    bool is_ending =
        meter->outstanding == 1 && meter->average_ns > 0 && now_ns + most_ns / AHEAD_PARTS >= due_ns;
    if (meter->outstanding == 0 || is_ending || !has_enough(meter, now_ns) ||
        is_stalled(meter, due_ns, now_ns))
        return (struct room){.is_there = true};
    uint64_t longest_ns = meter->average_ns < most_ns / LONG_PARTS ? SHORT_NAP_NS : LONGEST_NAP_NS;
    return (struct room){.nap_ns = clamp(left_ns / 2, SHORTEST_NAP_NS, longest_ns)};
}

static struct room ask_for_room(struct plimsoll_meter *meter) {
    pthread_mutex_lock(&SHARES->lock);
    struct room room = find_room(meter, plimsoll_now_ns());
    if (!room.is_there)
        meter->users++;
    pthread_mutex_unlock(&SHARES->lock);
    return room;
}

static void leave_meter(struct plimsoll_meter *meter) {
    pthread_mutex_lock(&SHARES->lock);
    meter->users--;
    pthread_mutex_unlock(&SHARES->lock);
}

bool plimsoll_wait_to_queue(struct plimsoll_meter *meter, uint32_t word) {
    struct room room = ask_for_room(meter);
    if (room.is_there)
        return true;
    plimsoll_burst_look(meter, false);
    leave_meter(meter);
    room = ask_for_room(meter);
    if (room.is_there)
        return true;
    plimsoll_gate_sleep(word, room.nap_ns);
    leave_meter(meter);
    plimsoll_burst_look(meter, false);
    return false;
}
