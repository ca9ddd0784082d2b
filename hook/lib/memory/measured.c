/* A process's first context on a GPU is made before anybody knows its cost, and a handle from outside whose
 * size stays unknown is imported. Their memory is then in no word, so only NVML can show it. The process must
 * not be granted memory before the broker has measured this very process, after the context was made or the
 * handle imported: a neighbour's measurement says nothing of it.
 *
 * The broker writes a larger excess into `limits` before it writes it into `measured`, and a smaller one
 * afterwards. So no part that is taken off here is larger than the part in `limits`.
 */
#include "memory/ledger.h"

#include <errno.h>

#include "broker/broker.h"
#include "clock.h"
#include "memory/bytes.h"
#include "say.h"
#include "state.h"

/* A broker that measures needs some hundredths of a second. A monitor measures once a second, and the second
 * measurement of a process counts. On a machine that stands still at times, both take seconds: a process
 * waits as long as it waits for its limits. */
#define MEASURED_MS 10000
#define POLL_MS 2

static uint64_t load(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static uint64_t excess_of_dead(unsigned gpu, const struct plimsoll_dead *dead) {
    uint64_t sum = 0;
    for (uint32_t i = 0; plimsoll.measured && i < PLIMSOLL_MAX_SLOTS; i++)
        if (dead->owners[i] && load(&plimsoll.measured->slots[i].owner) == dead->owners[i])
            sum = plimsoll_plus(sum, load(&plimsoll.measured->slots[i].excess_bytes[gpu]));
    return sum;
}

uint64_t plimsoll_excess(unsigned gpu, const struct plimsoll_dead *dead) {
    uint64_t all_bytes = __atomic_load_n(&plimsoll.gpus[gpu].excess_bytes, __ATOMIC_RELAXED);
    return dead && all_bytes ? plimsoll_minus(all_bytes, excess_of_dead(gpu, dead)) : all_bytes;
}

static uint64_t *due(unsigned gpu) {
    return &plimsoll.contexts[gpu].unmeasured_since_ns;
}

/* The stamp on the slot makes the broker ignore a measurement that began before the context was made. */
void plimsoll_measurement_due(unsigned gpu) {
    plimsoll_ledger_await(plimsoll.counts, plimsoll.slot, gpu, AWAITS_MEASUREMENT);
    __atomic_store_n(due(gpu), load(&plimsoll.counts->slots[plimsoll.slot].changed_ns), __ATOMIC_SEQ_CST);
}

/* NVML's figures reach the broker, and it writes one for each process, but not yet for this one. */
static bool is_outstanding(unsigned gpu, uint64_t since_ns) {
    const struct plimsoll_measured_slot *own =
        plimsoll.measured ? &plimsoll.measured->slots[plimsoll.slot] : NULL;
    bool is_measured = own && load(&own->owner) == plimsoll.owner && load(&own->measured_ns[gpu]) > since_ns;
    plimsoll_refresh(); /* the excess stands in `limits` before the measurement is dated */
    return !is_measured && !plimsoll.measures_no_process &&
           __atomic_load_n(&plimsoll.gpus[gpu].is_measured, __ATOMIC_RELAXED);
}

static void end_wait(unsigned gpu, uint64_t since_ns, bool is_given_up) {
    if (!__atomic_compare_exchange_n(due(gpu), &since_ns, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return; /* another thread ended this wait, or began another one */
    plimsoll_ledger_await(plimsoll.counts, plimsoll.slot, gpu,
                          is_given_up ? AWAITED_IN_VAIN : AWAITS_NOTHING);
    if (is_given_up)
        plimsoll_fail(
            "NVML did not show the memory of this process on %s within %d s, so the line does not hold "
            "its context, or what it imports, until it does (the broker's log says why)",
            plimsoll.gpus[gpu].uuid, MEASURED_MS / 1000);
}

void plimsoll_await_measurement(unsigned gpu) {
    uint64_t since_ns = load(due(gpu));
    if (since_ns == 0)
        return;
    int saved = errno;
    bool is_late = false, is_due;
    while ((is_due = is_outstanding(gpu, since_ns)) && !is_late) {
        plimsoll_sleep_ms(POLL_MS);
        is_late = plimsoll_now_ns() - since_ns >= MEASURED_MS * 1000000ull;
    }
    end_wait(gpu, since_ns, is_due);
    errno = saved;
}
