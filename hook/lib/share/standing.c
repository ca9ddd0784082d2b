#include "share/standing.h"

#include <unistd.h>

#include "clock.h"
#include "share/bursts.h"
#include "share/estimates.h"
#include "share/gate.h"
#include "share/polls.h"
#include "share/tails.h"

#define SHARES (&plimsoll.shares)

/* A launch stands this much longer than the queued work should take. */
#define PATIENCE_NS 3000000
/* Each launch that stood in vain doubles the time of the next, up to 64 times. */
#define VAIN_MOST 6
#define SLOWER_MOST 64.0
/* An executing process stands this many times longer while another process stands idle, because its work may
 * wait for that process. */
#define GIVES_WAY 4
/* A process that was woken has reported its progress within this time. */
#define ANSWER_NS 300000
/* The bounds of one sleep: the estimated event may come sooner. */
#define SHORTEST_NS 50000
#define LONGEST_NS 50000000
#define SOON_NS 1000000

/* The wait of one thread. */
struct stand {
    int gpu;
    uint64_t since_ns;    /* 0: the thread does not wait for executing work */
    uint64_t expected_ns; /* the time in which the work queued at since_ns should have ended */
    uint64_t queued_ns;   /* the container's queue when it was last seen to shrink */
    uint64_t renewed_ns;  /* when some of that queue was last done */
    uint64_t until_ns;
    uint64_t asked_ns; /* when the other processes were woken to report their state; 0: not yet */
    bool is_shown;
};

/* An evaluation results in 0 (the launch may go) or in the time to sleep. */
#define GO 0

/* --- reprieves -------------------------------------------------------------------------------------------
 */

/* A launch went although the gate was shut. Other launches may go too, until the work that was unfinished
 * then has ended. */
static void reprieve(void) {
    for (struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        for (unsigned i = 0; i < meter->mark_count; i++) {
            bool is_foremost = true;
            for (unsigned j = 0; j < i; j++)
                is_foremost &= meter->marks[j].stream != meter->marks[i].stream;
            meter->marks[i].is_reprieved = is_foremost;
        }
}

static bool is_reprieved(void) {
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        for (unsigned i = 0; i < meter->mark_count; i++)
            if (meter->marks[i].is_reprieved)
                return true;
    return false;
}

/* --- how long --------------------------------------------------------------------------------------------
 */

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most) {
    return value < least ? least : value > most ? most : value;
}

/* A factor between 1 and 1.5 that differs each time, so that threads do not wait in step. */
static double spread(uint64_t now_ns) {
    return 1.0 + (double)((now_ns * 2654435761u >> 8) & 1023) / 2048.0;
}

/* When some of the container's work was last done. For other processes' work only the present moment is
 * known. */
static uint64_t progressed_ns(const struct stand *stand, uint64_t now_ns) {
    uint64_t latest_ns = stand->renewed_ns;
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        if (meter->context)
            latest_ns = plimsoll_later(latest_ns, meter->reached_ns);
    return latest_ns > stand->renewed_ns ? latest_ns : now_ns;
}

/* The launch begins to stand, or some of the queue is done. From here on it waits for the rest of the
 * queue. */
static void renew(struct stand *stand, uint64_t queued_ns, uint64_t now_ns) {
    uint64_t sharers = plimsoll_gate_sharers();
    uint64_t sliced_ns = sharers * queued_ns + (sharers - 1) * plimsoll_gate_slice_ns();
    double expected_ns = (double)sliced_ns * spread(now_ns);
    if (!stand->since_ns) {
        stand->since_ns = now_ns;
        stand->expected_ns = (uint64_t)expected_ns;
        stand->renewed_ns = now_ns;
    } else {
        stand->renewed_ns = progressed_ns(stand, now_ns);
    }
    unsigned doublings = SHARES->vain < VAIN_MOST ? SHARES->vain : VAIN_MOST;
    double patience_ns = PATIENCE_NS + SHARES->slower * expected_ns;
    stand->queued_ns = queued_ns;
    stand->until_ns = stand->renewed_ns + (uint64_t)(patience_ns * (double)(1u << doublings));
}

/* Nothing executes, so the awaited work has ended. Learns how much later than expected that was. The expected
 * time includes one slice more. Without it, the short time until the end was noticed would seem long beside a
 * short queue. */
static void conclude(struct stand *stand, bool is_shut, uint64_t now_ns) {
    if (stand->since_ns && is_shut) {
        double slower = 1.5 * (double)(now_ns - stand->since_ns) /
                        (double)(stand->expected_ns + plimsoll_gate_slice_ns());
        SHARES->slower = slower < 1 ? 1 : slower > SLOWER_MOST ? SLOWER_MOST : slower;
    }
    stand->since_ns = stand->asked_ns = 0;
    SHARES->vain = 0;
    SHARES->is_following = false;
}

/* --- the rules -------------------------------------------------------------------------------------------
 */

static uint64_t runnable_ns(int gpu) {
    uint64_t sum_ns = 0;
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        if (meter->context && meter->gpu == gpu)
            sum_ns += plimsoll_runnable(meter) * meter->average_ns;
    return sum_ns;
}

/* Needs the lock. The launch waits until half of the allowed queue is left where no other process runs,
 * because a neighbour's gate may shut at any moment. Or it waits until all runnable work has run, because the
 * rest may wait for this very launch. */
static uint64_t until_room_ns(int gpu, uint64_t queued_ns, uint64_t ahead_ns) {
    uint64_t drained_ns = queued_ns > ahead_ns / 2 ? queued_ns - ahead_ns / 2 : 0;
    return clamp(plimsoll_sooner(drained_ns, runnable_ns(gpu)), SHORTEST_NS, LONGEST_NS);
}

/* While the length of a launch is unknown, the first launch counts as the whole allowed queue. The first few
 * launches are exact while those under way take much longer than earlier ones did. */
static uint64_t left_ns(int gpu, uint64_t now_ns) {
    uint64_t sum_ns = 0;
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next) {
        if (!meter->context || meter->gpu != gpu)
            continue;
        if (!plimsoll_is_known(meter, now_ns) && !is_reprieved())
            return plimsoll_gate_ahead_ns();
        sum_ns += plimsoll_left_ns(meter, now_ns);
    }
    return sum_ns;
}

static uint64_t until(uint64_t moment_ns, uint64_t now_ns) {
    return clamp(plimsoll_later(moment_ns, now_ns) - now_ns, SHORTEST_NS, LONGEST_NS);
}

/* The time after which the queue may have drained, so that the launch can be judged again. */
static uint64_t until_done_ns(uint64_t queued_ns) {
    return clamp(plimsoll_gate_sharers() * queued_ns, SOON_NS, LONGEST_NS);
}

/* Needs the lock. An executing process gives way to a process that stands without work, because its work may
 * wait for that process. */
static uint64_t stand_bounded(struct stand *stand, bool is_fresh, uint64_t now_ns) {
    uint64_t queued_ns = plimsoll_container_queued_ns();
    if (!stand->since_ns || queued_ns < stand->queued_ns)
        renew(stand, queued_ns, now_ns);
    bool gives_way = plimsoll_process_executes(now_ns) && plimsoll_others_stand_idle(now_ns);
    uint64_t patience_ns = (stand->until_ns - stand->renewed_ns) * (gives_way ? GIVES_WAY : 1);
    if (now_ns < stand->renewed_ns + patience_ns || !is_fresh)
        return plimsoll_sooner(until(stand->renewed_ns + patience_ns, now_ns), until_done_ns(queued_ns));
    SHARES->vain++;
    SHARES->is_following = !plimsoll_process_executes(now_ns);
    stand->since_ns = 0;
    reprieve();
    return GO;
}

/* Needs the lock. Launches go one by one as long as the other processes execute, because the work that those
 * have queued may need nothing but this process's next launches. Then all processes stand. */
static uint64_t follow(struct stand *stand, uint64_t now_ns) {
    if (!stand->asked_ns) {
        stand->asked_ns = now_ns;
        plimsoll_gate_wake();
    }
    return now_ns < stand->asked_ns + ANSWER_NS ? until(stand->asked_ns + ANSWER_NS, now_ns) : GO;
}

/* Needs the lock. */
static uint64_t judge(struct stand *stand, uint32_t state, bool is_fresh, uint64_t now_ns) {
    bool is_shut = state == PLIMSOLL_GATE_SHUT;
    uint64_t ahead_ns = plimsoll_gate_ahead_ns();
    if (!plimsoll_container_executes(now_ns)) {
        conclude(stand, is_shut, now_ns);
        return is_shut ? LONGEST_NS : GO;
    }
    if (is_shut && SHARES->is_following && !plimsoll_process_executes(now_ns))
        return follow(stand, now_ns);
    uint64_t queued_ns = SHARES->bursts[stand->gpu].launched_ns ? left_ns(stand->gpu, now_ns) : 0;
    bool needs_room = !is_shut || is_reprieved();
    if (needs_room && queued_ns < ahead_ns) {
        stand->since_ns = 0;
        return GO;
    }
    uint64_t bounded_ns = stand_bounded(stand, is_fresh, now_ns);
    if (!needs_room || bounded_ns == GO)
        return bounded_ns;
    return plimsoll_sooner(bounded_ns, until_room_ns(stand->gpu, queued_ns, ahead_ns));
}

static uint64_t judge_now(struct stand *stand, uint32_t word, bool is_fresh) {
    uint64_t now_ns = plimsoll_now_ns();
    uint32_t state = plimsoll_gate_state(word, now_ns);
    pthread_mutex_lock(&SHARES->lock);
    plimsoll_bursts_meter(state != PLIMSOLL_GATE_OPEN, now_ns);
    uint64_t sleep_ns = state == PLIMSOLL_GATE_OPEN ? GO : judge(stand, state, is_fresh, now_ns);
    pthread_mutex_unlock(&SHARES->lock);
    return sleep_ns;
}

/* Polls all marks before a thread stands, so that the decision uses the present state of the queues. */
static uint64_t evaluate(struct stand *stand, uint32_t word) {
    uint64_t sleep_ns = judge_now(stand, word, false);
    if (sleep_ns == GO)
        return GO;
    plimsoll_poll(false);
    return judge_now(stand, word, true);
}

static void show_standing(struct stand *stand, bool is_standing) {
    if (stand->is_shown != is_standing)
        plimsoll_burst_stand(stand->gpu, is_standing ? 1 : -1);
    stand->is_shown = is_standing;
}

/* A signal handler of the program may fork while this thread sleeps. The child returns from the sleep as
 * well, has no slot yet, and has nothing to wait for. */
bool plimsoll_stand(int gpu, CUstream stream) {
    struct stand stand = {.gpu = gpu};
    pid_t own = getpid();
    for (;;) {
        uint32_t word = plimsoll_gate_word();
        uint64_t sleep_ns = evaluate(&stand, word);
        if (sleep_ns == GO)
            break;
        if (!stand.is_shown)
            plimsoll_see_to_tail(stream);
        show_standing(&stand, true);
        plimsoll_gate_sleep(word, sleep_ns);
        if (getpid() != own)
            return false;
    }
    show_standing(&stand, false);
    return true;
}
