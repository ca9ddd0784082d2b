/* A broker whose beat stands still is lost. Until the beat goes on, launches then stand for the container's
 * limit alone, because nobody would open the gate. A late beat is enough where the kernel shows that the
 * broker is gone. A stopped or busy broker keeps its socket, so only the age of its beat shows that it is
 * lost. */
#include "share/gate.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "broker/messages.h"
#include "say.h"
#include "share/limit.h"
#include "state.h"

#define EVERYBODY 0x7fffffff
#define US 1000u
/* Between two questions of this process whether a broker with a late beat is gone. */
#define ASK_NS 50000000u

void plimsoll_gate_follow(const struct plimsoll_gate *gate) {
    __atomic_store_n(&plimsoll.gate, gate, __ATOMIC_RELEASE);
    __atomic_store_n(&plimsoll.gate_word, &gate->word, __ATOMIC_RELEASE);
    __atomic_store_n(&plimsoll.shares.passes_left, 1, __ATOMIC_RELAXED);
}

bool plimsoll_has_gate(void) {
    return __atomic_load_n(&plimsoll.gate, __ATOMIC_ACQUIRE) != NULL;
}

uint32_t plimsoll_gate_word(void) {
    return __atomic_load_n(__atomic_load_n(&plimsoll.gate_word, __ATOMIC_RELAXED), __ATOMIC_ACQUIRE);
}

static void report_loss(bool is_lost) {
    if (__atomic_exchange_n(&plimsoll.shares.is_lost, is_lost, __ATOMIC_ACQ_REL) == is_lost)
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
    uint64_t asked_ns = __atomic_load_n(&plimsoll.shares.asked_ns, __ATOMIC_RELAXED);
    if (__atomic_load_n(&plimsoll.shares.last_beat_ns, __ATOMIC_RELAXED) == beat_ns)
        return true;
    if (now_ns < asked_ns + ASK_NS ||
        !__atomic_compare_exchange_n(&plimsoll.shares.asked_ns, &asked_ns, now_ns, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED) ||
        !plimsoll_broker_is_gone())
        return false;
    __atomic_store_n(&plimsoll.shares.last_beat_ns, beat_ns, __ATOMIC_RELAXED);
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
    if (is_lost != __atomic_load_n(&plimsoll.shares.is_lost, __ATOMIC_RELAXED)) {
        plimsoll_limit_begin(now_ns);
        report_loss(is_lost);
    }
    return is_lost ? plimsoll_limit_state(now_ns) : state;
}

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
