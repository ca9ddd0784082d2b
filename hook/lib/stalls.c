#include "stalls.h"

#include <stddef.h>

#include "bursts.h"
#include "gate.h"

#define SHARES (&plimsoll.shares)

/* Work is overdue so much later than the average says: about what waking up may take. Taken for overdue too
 * soon, it lets a launch of its own container through, which is charged as any other; too late, everybody
 * waits. */
#define OVERDUE_NS 500000
/* Between the ends of two kernels that began together: one of them is done, so will be the other. */
#define APART_NS 200000
/* Nobody looked any more since: a process that was stopped. */
#define FRESH_NS 100000000
/* From the gate's shutting: as long as the broker waits, as a rule. Later others have the GPUs, and who is
 * waited for gets on when its turn comes. */
#define FOLLOWED_NS 1000000000

static uint64_t load(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static uint64_t later_of(uint64_t one, uint64_t other) {
    return one > other ? one : other;
}

/* Behind one gate, a collective needs another GPU. */
static bool has_several_gpus(void) {
    return plimsoll_has_gate() && plimsoll.gpu_count > 1;
}

/* --- who waits --------------------------------------------------------------------------------------------
 */

static bool is_overdue(const struct plimsoll_meter *meter, uint64_t now_ns) {
    return meter->is_under_way && meter->launching == 0 &&
           now_ns > later_of(plimsoll_burst_due_ns(meter), meter->entered_ns) + OVERDUE_NS;
}

void plimsoll_stalls_note(uint64_t looked_ns) {
    uint64_t latest_ns = 0;
    if (!has_several_gpus())
        return;
    pthread_mutex_lock(&SHARES->lock);
    for (int i = 0; i < PLIMSOLL_METERS; i++) {
        struct plimsoll_meter *meter = &SHARES->meters[i];
        meter->stalled_ns = looked_ns > 0 && is_overdue(meter, looked_ns) ? looked_ns : 0;
        latest_ns = later_of(latest_ns, meter->stalled_ns);
    }
    __atomic_store_n(&plimsoll.counts->slots[plimsoll.slot].stalled_ns, latest_ns, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&SHARES->lock);
}

/* --- who is waited for ------------------------------------------------------------------------------------
 */

/* The latest of a word of the other processes' slots. */
static uint64_t latest_elsewhere(size_t offset) {
    const struct plimsoll_counts *counts = plimsoll.counts;
    uint32_t touched = __atomic_load_n(&counts->slots_touched, __ATOMIC_ACQUIRE);
    uint64_t latest = 0;
    for (uint32_t i = 0; i < touched && i < PLIMSOLL_MAX_SLOTS; i++)
        if (i != plimsoll.slot)
            latest = later_of(
                latest, load((const uint64_t *)(const void *)((const char *)&counts->slots[i] + offset)));
    return latest;
}

/* Under the lock. */
static uint64_t stalled_beside_ns(const struct plimsoll_meter *meter) {
    uint64_t latest_ns = latest_elsewhere(offsetof(struct plimsoll_slot, stalled_ns));
    for (int i = 0; i < PLIMSOLL_METERS; i++)
        if (&SHARES->meters[i] != meter)
            latest_ns = later_of(latest_ns, SHARES->meters[i].stalled_ns);
    return latest_ns;
}

/* Under the lock. One of the others is overdue, and was so when this one's latest work had ended. */
static bool is_waited_for(const struct plimsoll_meter *meter, uint64_t now_ns) {
    uint64_t stalled_ns = stalled_beside_ns(meter);
    return stalled_ns > 0 && stalled_ns > meter->ended_ns + APART_NS && now_ns < stalled_ns + FRESH_NS;
}

bool plimsoll_may_follow(uint64_t context) {
    if (!has_several_gpus())
        return false;
    pthread_mutex_lock(&SHARES->lock);
    uint64_t now_ns = plimsoll_now_ns();
    const struct plimsoll_meter *meter = plimsoll_meter_of(context);
    bool is_idle = meter && !meter->is_under_way && !meter->is_broken && meter->epoch == SHARES->epoch;
    bool may = is_idle && now_ns < SHARES->seen_ns + FOLLOWED_NS && is_waited_for(meter, now_ns);
    pthread_mutex_unlock(&SHARES->lock);
    return may;
}

bool plimsoll_is_container_busy(void) {
    if (!has_several_gpus())
        return false;
    return __atomic_load_n(&SHARES->under_way, __ATOMIC_RELAXED) > 0 ||
           latest_elsewhere(offsetof(struct plimsoll_slot, busy_since_ns)) > 0;
}
