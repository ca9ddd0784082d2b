/* A broker is lost when it hung up, or when its beat stands still. Then nobody opens the gate any more, and
 * launches pass, until it can be told again that they wait.
 */
#include "gate.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bursts.h"
#include "reports.h"
#include "say.h"
#include "stalls.h"

#define SHARES (&plimsoll.shares)

/* How often who waits looks whether the broker lives. */
#define LOOK_NS 100000000
#define EVERYBODY 0x7fffffff
/* While work of this container may turn out to wait for what stands here. */
#define FOLLOW_NS 250000
/* A beat comes once a second; a broker on a busy machine may be late. */
#define BEAT_NS 3000000000

/* What a waiting thread knows of the broker's beat. */
struct pulse {
    uint32_t beat;
    uint64_t since_ns;
    uint64_t looked_ns;
};

void plimsoll_gate_follow(const struct plimsoll_gate *gate) {
    SHARES->seen_word = gate->word;
    __atomic_store_n(&plimsoll.gate, gate, __ATOMIC_RELEASE);
    __atomic_store_n(&plimsoll.gate_word, &gate->word, __ATOMIC_RELEASE);
}

bool plimsoll_has_gate(void) {
    return __atomic_load_n(&plimsoll.gate, __ATOMIC_ACQUIRE) != NULL;
}

uint32_t plimsoll_gate_word(void) {
    return __atomic_load_n(__atomic_load_n(&plimsoll.gate_word, __ATOMIC_RELAXED), __ATOMIC_ACQUIRE);
}

static uint32_t beat(void) {
    return __atomic_load_n(&plimsoll.gate->beat, __ATOMIC_RELAXED);
}

void plimsoll_gate_sleep(uint32_t seen, uint64_t longest_ns) {
    int saved = errno;
    struct timespec limit = {.tv_sec = (time_t)(longest_ns / 1000000000),
                             .tv_nsec = (long)(longest_ns % 1000000000)};
    syscall(SYS_futex, plimsoll.gate_word, FUTEX_WAIT, seen, &limit, NULL, 0);
    errno = saved;
}

void plimsoll_gate_stir(void) {
    int saved = errno;
    syscall(SYS_futex, plimsoll.gate_word, FUTEX_WAKE, EVERYBODY, NULL, NULL, 0);
    errno = saved;
}

bool plimsoll_gate_is_lost(void) {
    return __atomic_load_n(&SHARES->is_lost, __ATOMIC_ACQUIRE);
}

static void lose(const char *why) {
    __atomic_store_n(&SHARES->lost_beat, beat(), __ATOMIC_RELAXED);
    __atomic_store_n(&SHARES->lost_word, plimsoll_gate_word(), __ATOMIC_RELAXED);
    if (!__atomic_exchange_n(&SHARES->is_lost, true, __ATOMIC_ACQ_REL))
        plimsoll_fail("the broker of this node %s: compute shares are not enforced until it is back", why);
}

/* By the clock, as a program's signals may end every sleep before its time. */
static void check_broker(struct pulse *pulse) {
    uint64_t now_ns = plimsoll_now_ns();
    if (now_ns - pulse->looked_ns < LOOK_NS)
        return;
    pulse->looked_ns = now_ns;
    if (beat() != pulse->beat) {
        pulse->beat = beat();
        pulse->since_ns = now_ns;
    }
    if (!plimsoll_report_stands())
        lose("is not there");
    else if (now_ns - pulse->since_ns > BEAT_NS)
        lose("gives no sign of life");
}

/* Once for each word that somebody waits under: the broker knows what it wrote since. */
static void want(uint32_t word) {
    if (__atomic_exchange_n(&SHARES->wanted_word, word, __ATOMIC_ACQ_REL) != word && !plimsoll_report(word))
        lose("is not there");
}

/* A handler of the program's may fork while this thread sleeps: the child comes out of here as well, and has
 * nothing to wait for. */
bool plimsoll_gate_wait(uint32_t word, uint64_t context) {
    pid_t waiter = getpid();
    uint64_t now_ns = plimsoll_now_ns();
    struct pulse pulse = {beat(), now_ns, now_ns};
    __atomic_fetch_add(&SHARES->waiting, 1, __ATOMIC_SEQ_CST);
    want(word);
    while (plimsoll_gate_word() == word && !plimsoll_gate_is_lost() && !plimsoll_may_follow(context)) {
        plimsoll_gate_sleep(word, plimsoll_is_container_busy() ? FOLLOW_NS : LOOK_NS);
        if (getpid() != waiter)
            return false;
        check_broker(&pulse);
    }
    __atomic_fetch_sub(&SHARES->waiting, 1, __ATOMIC_SEQ_CST);
    return true;
}

/* A connection alone is no sign: a broker that is stopped has one. */
static bool has_stirred(void) {
    return beat() != __atomic_load_n(&SHARES->lost_beat, __ATOMIC_RELAXED) ||
           plimsoll_gate_word() != __atomic_load_n(&SHARES->lost_word, __ATOMIC_RELAXED);
}

static void begin_anew(void) {
    pthread_mutex_lock(&SHARES->lock);
    SHARES->epoch++;
    pthread_mutex_unlock(&SHARES->lock);
    __atomic_store_n(&SHARES->drained_word, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&SHARES->wanted_word, 0, __ATOMIC_RELEASE);
}

bool plimsoll_gate_seek(uint32_t word) {
    if (!plimsoll_gate_is_lost()) {
        if (!plimsoll_report_stands())
            lose("is not there");
        return false;
    }
    if (!has_stirred())
        return false;
    begin_anew();
    if (!plimsoll_report(word))
        return false;
    __atomic_store_n(&SHARES->is_lost, false, __ATOMIC_RELEASE);
    plimsoll_fail("the broker of this node is back: compute shares are enforced again");
    return true;
}
