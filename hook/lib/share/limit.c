/* Each process holds itself to its container's limit, by the words of all processes of the container. A
 * request needs a broker, because it depends on what other containers do. So does the part of sliced time in
 * which others executed. Without a broker all of it counts, so a container beside others may get less than
 * its limit, and never more. */
#include "share/limit.h"

#include "clock.h"
#include "memory/ledger.h"
#include "state.h"

/* Time that the container may have left unused, and use later. Twice the longest sleep at a shut gate. */
#define SAVED_NS 100000000u
/* A process that was killed while it wrote its words leaves them inconsistent. */
#define READS 64

static uint64_t load(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* The words are read upwards, as plimsoll/broker/pages.py promises to readers. */
static uint64_t executed_ns(const struct plimsoll_work *work, uint64_t now_ns) {
    uint64_t sum_ns = 0;
    for (int i = 0; i < READS; i++) {
        uint64_t settled = load(&work->settled), launched_ns = load(&work->launched_ns);
        uint64_t since_ns = load(&work->executed_ns);
        sum_ns = load(&work->sure_ns);
        sum_ns += load(&work->sliced_ns);
        uint64_t begun = load(&work->begun);
        uint64_t until_ns = plimsoll_sooner(now_ns, load(&work->looked_ns) + PLIMSOLL_SILENT_NS);
        if (launched_ns && since_ns && until_ns > since_ns)
            sum_ns += until_ns - since_ns;
        if (settled == begun)
            break;
    }
    return sum_ns;
}

static uint64_t used_ns(unsigned gpu, uint64_t now_ns) {
    uint32_t touched = plimsoll_ledger_slots(plimsoll.counts);
    uint64_t sum_ns = 0;
    for (uint32_t slot = 0; slot < touched; slot++)
        sum_ns += executed_ns(&plimsoll.counts->works[slot].gpus[gpu], now_ns);
    return sum_ns;
}

void plimsoll_limit_begin(uint64_t now_ns) {
    for (unsigned gpu = 0; gpu < plimsoll.gpu_count; gpu++) {
        __atomic_store_n(&plimsoll.shares.paid_ns[gpu], used_ns(gpu, now_ns), __ATOMIC_RELAXED);
        __atomic_store_n(&plimsoll.shares.settled_ns[gpu], now_ns, __ATOMIC_RELAXED);
    }
}

/* Time that was used has to be followed by a multiple of it. A container that uses less saves a little. */
static bool is_ahead(unsigned gpu, uint32_t limit_pct, uint64_t now_ns) {
    uint64_t paid_ns = load(&plimsoll.shares.paid_ns[gpu]), used = used_ns(gpu, now_ns);
    uint64_t since_ns = load(&plimsoll.shares.settled_ns[gpu]);
    uint64_t due_ns = used > paid_ns ? (used - paid_ns) * 100 / (limit_pct ? limit_pct : 1) : 0;
    if (now_ns > since_ns + due_ns + SAVED_NS) {
        since_ns = now_ns - due_ns - SAVED_NS;
        __atomic_store_n(&plimsoll.shares.settled_ns[gpu], since_ns, __ATOMIC_RELAXED);
    }
    return now_ns < since_ns + due_ns;
}

uint32_t plimsoll_limit_state(uint64_t now_ns) {
    uint32_t state = PLIMSOLL_GATE_OPEN;
    for (unsigned gpu = 0; gpu < plimsoll.gpu_count; gpu++) {
        uint32_t limit_pct = __atomic_load_n(&plimsoll.limits->gpus[gpu].limit_pct, __ATOMIC_RELAXED);
        if (limit_pct < 100 && is_ahead(gpu, limit_pct, now_ns))
            return PLIMSOLL_GATE_SHUT;
        if (limit_pct < 100)
            state = PLIMSOLL_GATE_METERED;
    }
    return state;
}
