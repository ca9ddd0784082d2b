#include "share/sampling.h"

#include "clock.h"
#include "share/estimates.h"
#include "share/gate.h"
#include "share/polls.h"

#define SHARES (&plimsoll.shares)

/* The most launches between two samples; and, while launches are long, the number of samples within the time
 * that may be queued. */
#define PASSES_MOST 255u
#define SAMPLE_PARTS 4
/* This many launches may be queued while nothing is known about them. They may be long, and the end of the
 * first shows how long. */
#define FIRST_LAUNCHES 4
/* Short naps follow while nothing is known. Otherwise the GPU would idle behind the first short launches of
 * each context. */
#define UNKNOWN UINT64_MAX
#define NAP_NS 100000
#define LONGEST_NAP_NS 10000000

/* Needs the lock. The next sample comes soon while launches are long, or while nothing is known about
 * them. */
static void plan_sample(const struct plimsoll_meter *meter, uint64_t now_ns) {
    uint64_t each_ns = plimsoll_each_ns(meter, now_ns), passes = 1;
    if (meter->average_ns)
        passes = plimsoll_sooner(plimsoll_gate_alone_ns() / SAMPLE_PARTS / each_ns | 1, PASSES_MOST);
    __atomic_store_n(&SHARES->passes_each, (uint32_t)passes, __ATOMIC_RELAXED);
    __atomic_store_n(&SHARES->passes_left, (uint32_t)passes - 1, __ATOMIC_RELAXED);
}

/* The time by which the queue passes what may be queued; UNKNOWN while nothing shows how long launches take.
 */
static uint64_t excess_ns(struct plimsoll_meter *meter) {
    plimsoll_poll_meter(meter);
    uint64_t now_ns = plimsoll_now_ns(), alone_ns = plimsoll_gate_alone_ns();
    pthread_mutex_lock(&SHARES->lock);
    bool is_known = meter->average_ns > 0 || meter->mark_count < FIRST_LAUNCHES;
    uint64_t left_ns = is_known ? plimsoll_left_ns(meter, now_ns) : 0;
    plan_sample(meter, now_ns);
    pthread_mutex_unlock(&SHARES->lock);
    if (!is_known)
        return UNKNOWN;
    return left_ns > alone_ns ? left_ns - alone_ns : 0;
}

/* Twice the time that the excess should take, but no more than two launches, because work in the queue may
 * wait for this launch. */
static uint64_t patience_ns(const struct plimsoll_meter *meter, uint64_t excess) {
    pthread_mutex_lock(&SHARES->lock);
    uint64_t most_ns = plimsoll_later(2 * meter->average_ns, plimsoll_gate_alone_ns());
    pthread_mutex_unlock(&SHARES->lock);
    return excess < most_ns ? plimsoll_sooner(2 * excess, most_ns) : most_ns;
}

static uint64_t nap_ns(uint64_t excess) {
    return excess == UNKNOWN ? NAP_NS : plimsoll_sooner(plimsoll_later(excess, NAP_NS), LONGEST_NAP_NS);
}

/* Waits while too much is queued, so that a new neighbour soon has its part. */
void plimsoll_sample_await_room(struct plimsoll_meter *meter, uint32_t word) {
    uint64_t excess = excess_ns(meter), begun_ns = plimsoll_now_ns();
    uint64_t until_ns = begun_ns + patience_ns(meter, excess);
    while (excess > 0 && plimsoll_gate_word() == word && plimsoll_now_ns() < until_ns) {
        plimsoll_gate_sleep(word, nap_ns(excess));
        excess = excess_ns(meter);
    }
}

/* While the broker is lost, every launch comes here, whatever state the gate's word has. */
bool plimsoll_sample_is_due(void) {
    uint32_t left = __atomic_load_n(&SHARES->passes_left, __ATOMIC_RELAXED);
    if (left > 0)
        __atomic_store_n(&SHARES->passes_left, left - 1, __ATOMIC_RELAXED);
    return left == 0;
}
