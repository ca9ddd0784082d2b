/* A broker whose beat stands still is lost. Until the beat goes on, launches then wait for the container's
 * limit alone, because nobody would open the gate. A late beat is enough where the kernel shows that the
 * broker is gone. A stopped or busy broker keeps its socket, so only the age of its beat shows that it is
 * lost. */
#include "share/gate.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "broker/broker.h"
#include "clock.h"
#include "memory/ledger.h"
#include "say.h"
#include "state.h"

#define LOST (&plimsoll.shares.lost)

#define EVERYBODY 0x7fffffff
#define US 1000u
/* Between two questions of this process whether a broker with a late beat is gone. */
#define ASK_NS 50000000u

void plimsoll_gate_follow(const struct plimsoll_gate *gate) {
    __atomic_store_n(&plimsoll.gate, gate, __ATOMIC_RELEASE);
    __atomic_store_n(&plimsoll.gate_word, &gate->word, __ATOMIC_RELEASE);
    __atomic_store_n(&plimsoll.shares.samples.passes_left, 1, __ATOMIC_RELAXED);
}

bool plimsoll_has_gate(void) {
    return __atomic_load_n(&plimsoll.gate, __ATOMIC_ACQUIRE) != NULL;
}

uint32_t plimsoll_gate_word(void) {
    return __atomic_load_n(__atomic_load_n(&plimsoll.gate_word, __ATOMIC_RELAXED), __ATOMIC_ACQUIRE);
}

/* --- the container's limit while no broker opens and shuts the gate --------------------------------------
 *
 * Each process holds itself to its container's limit, by the words of all processes of the container. A
 * request needs a broker, because it depends on what other containers do. So does the part of sliced time in
 * which others executed. Without a broker all of it counts, so a container beside others may get less than
 * its limit, and never more.
 */

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

/* Begins to count: the container owes nothing for the time before. */
static void begin_limit(uint64_t now_ns) {
    for (unsigned gpu = 0; gpu < plimsoll.gpu_count; gpu++) {
        __atomic_store_n(&LOST->paid_ns[gpu], used_ns(gpu, now_ns), __ATOMIC_RELAXED);
        __atomic_store_n(&LOST->settled_ns[gpu], now_ns, __ATOMIC_RELAXED);
    }
}

/* Time that was used has to be followed by a multiple of it. A container that uses less saves a little. */
static bool is_ahead(unsigned gpu, uint32_t limit_pct, uint64_t now_ns) {
    uint64_t paid_ns = load(&LOST->paid_ns[gpu]), used = used_ns(gpu, now_ns);
    uint64_t since_ns = load(&LOST->settled_ns[gpu]);
    uint64_t due_ns = used > paid_ns ? (used - paid_ns) * 100 / (limit_pct ? limit_pct : 1) : 0;
    if (now_ns > since_ns + due_ns + SAVED_NS) {
        since_ns = now_ns - due_ns - SAVED_NS;
        __atomic_store_n(&LOST->settled_ns[gpu], since_ns, __ATOMIC_RELAXED);
    }
    return now_ns < since_ns + due_ns;
}

/* The state by the limit alone: PLIMSOLL_GATE_OPEN without a limit, else _METERED, and _SHUT while the
 * container has had more of a GPU's time than its limit allows. */
static uint32_t limit_state(uint64_t now_ns) {
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

/* --- a broker that is lost -------------------------------------------------------------------------------
 */

static void report_loss(bool is_lost) {
    if (__atomic_exchange_n(&LOST->is_lost, is_lost, __ATOMIC_ACQ_REL) == is_lost)
        return;
    if (is_lost)
        plimsoll_fail(
            "the broker of this node gives no sign of life: compute limits hold, but requested shares are "
            "not enforced until it is back");
    else
        plimsoll_fail("the broker of this node is back: compute shares are enforced again");
}

/* One thread at a time asks. "Gone" holds until the next beat, which only another broker writes. */
static bool is_gone(uint64_t beat_ns, uint64_t now_ns) {
    uint64_t asked_ns = __atomic_load_n(&LOST->asked_ns, __ATOMIC_RELAXED);
    if (__atomic_load_n(&LOST->last_beat_ns, __ATOMIC_RELAXED) == beat_ns)
        return true;
    if (now_ns < asked_ns + ASK_NS ||
        !__atomic_compare_exchange_n(&LOST->asked_ns, &asked_ns, now_ns, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED) ||
        !plimsoll_broker_is_gone())
        return false;
    __atomic_store_n(&LOST->last_beat_ns, beat_ns, __ATOMIC_RELAXED);
    return true;
}

static bool is_lost_at(uint64_t now_ns) {
    uint64_t beat_ns = __atomic_load_n(&plimsoll.gate->beat_ns, __ATOMIC_RELAXED);
    return now_ns > beat_ns + PLIMSOLL_LATE_NS &&
           (now_ns > beat_ns + PLIMSOLL_LOST_NS || is_gone(beat_ns, now_ns));
}

uint32_t plimsoll_gate_state(uint32_t word, uint64_t now_ns) {
    uint32_t state = word & PLIMSOLL_GATE_STATES;
    if (state == PLIMSOLL_GATE_OPEN)
        return state;
    bool is_lost = is_lost_at(now_ns);
    if (is_lost != __atomic_load_n(&LOST->is_lost, __ATOMIC_RELAXED)) {
        begin_limit(now_ns);
        report_loss(is_lost);
    }
    return is_lost ? limit_state(now_ns) : state;
}

/* --- sleep -----------------------------------------------------------------------------------------------
 */

/* A signal handler of the program may leave this sleep by longjmp. The thread is then outside of any hook,
 * and its later calls must count. */
void plimsoll_gate_sleep(uint32_t seen, uint64_t longest_ns) {
    int saved = errno;
    struct timespec limit = {.tv_sec = (time_t)(longest_ns / 1000000000),
                             .tv_nsec = (long)(longest_ns % 1000000000)};
    plimsoll_depth--;
    syscall(SYS_futex, plimsoll.gate_word, FUTEX_WAIT, seen, &limit, NULL, 0);
    plimsoll_depth++;
    errno = saved;
}

void plimsoll_gate_wake(void) {
    int saved = errno;
    syscall(SYS_futex, plimsoll.gate_word, FUTEX_WAKE, EVERYBODY, NULL, NULL, 0);
    errno = saved;
}

static uint64_t at_least(const uint32_t *word, uint32_t least) {
    uint32_t value = __atomic_load_n(word, __ATOMIC_RELAXED);
    return value > least ? value : least;
}

uint64_t plimsoll_gate_ahead_ns(void) {
    return at_least(&plimsoll.gate->ahead_us, 1) * US;
}

uint64_t plimsoll_gate_alone_ns(void) {
    return at_least(&plimsoll.gate->alone_us, 1000) * US;
}

uint64_t plimsoll_gate_slice_ns(void) {
    return at_least(&plimsoll.gate->slice_us, 1) * US;
}

uint64_t plimsoll_gate_sharers(void) {
    return at_least(&plimsoll.gate->sharers, 1);
}
