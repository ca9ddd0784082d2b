/* The way of a launch that its hook does not pass at once (launch.h), from top to bottom: the launch enters,
 * the predicate decide() says what becomes of it, and the launch leaves after the driver's call. What
 * measures stands behind work.h.
 *
 * If nothing of its container executes, a launch waits until time opens the gate. Otherwise it waits for a
 * bounded time. So no wait is circular. While nothing executes, the container is charged nothing, and time
 * and its accounts alone open the gate. While something executes, that work may wait for this launch: a
 * kernel for a flag, a host function for a lock that the launching thread holds. The bound ends such a wait.
 */
#include "share/launch.h"

#include <errno.h>
#include <unistd.h>

#include "broker/broker.h"
#include "clock.h"
#include "driver/gpus.h"
#include "memory/current.h"
#include "share/gate.h"

#define SHARES (&plimsoll.shares)

/* The four decisions about a launch. */
enum decision {
    PASS,   /* it goes to the driver */
    SAMPLE, /* it goes, and is one of the few that are measured behind an open gate */
    METER,  /* it goes, and is measured */
    WAIT    /* it waits for `sleep_ns`, and the decision is made anew */
};

/* The wait of one launch. */
struct wait {
    uint64_t context;
    CUstream stream;
    int gpu;
    uint32_t word; /* the gate's word that the latest decision was made by */
    uint64_t sleep_ns;
    bool has_waited;
    /* while work executes that the launch waits for */
    uint64_t since_ns;    /* 0: the launch does not wait for executing work */
    uint64_t expected_ns; /* the time in which the work queued at since_ns should have ended */
    uint64_t queued_ns;   /* the container's queue when it was last seen to shrink */
    uint64_t renewed_ns;  /* when some of that queue was last done */
    uint64_t until_ns;
    uint64_t woken_ns; /* when the other processes were woken to report their state; 0: not yet */
};

/* The steps of enter(), in the order in which this file has them. */
static enum decision decide(struct wait *wait, bool is_polled);
static uint64_t behind_closed_gate(struct wait *wait, bool is_shut, bool is_polled, uint64_t now_ns);
static uint64_t wait_bounded(struct wait *wait, bool is_polled, uint64_t now_ns);
static bool is_sample_due(void);
static void await_room(struct plimsoll_meter *meter, uint32_t word);

/* --- the launch enters -----------------------------------------------------------------------------------
 */

/* A program may have got its context without the hook of cuInit. Then the process attaches here. If no gate
 * holds the process, the next check comes after as many launches as can be counted. */
static bool is_under_gate(void) {
    if (!plimsoll_current_context())
        return false;
    if (plimsoll_attach() == ATTACHMENT_FULL && plimsoll_has_gate())
        return true;
    __atomic_store_n(&SHARES->samples.passes_left, UINT32_MAX, __ATOMIC_RELAXED);
    return false;
}

/* All events are polled before a thread waits, so that the decision uses the present state of the queues. */
static enum decision decide_now(struct wait *wait) {
    wait->word = plimsoll_gate_word();
    enum decision decision = decide(wait, false);
    if (decision != WAIT)
        return decision;
    plimsoll_poll(false);
    return decide(wait, true);
}

/* A signal handler of the program may fork while this thread sleeps. The child returns from the sleep as
 * well, has no slot yet, and has nothing to wait for. */
static enum decision await_decision(struct wait *wait) {
    enum decision decision;
    pid_t own = getpid();
    while ((decision = decide_now(wait)) == WAIT) {
        if (!wait->has_waited) {
            plimsoll_see_to_tail(wait->stream);
            plimsoll_show_waiting(wait->gpu, 1);
            wait->has_waited = true;
        }
        plimsoll_gate_sleep(wait->word, wait->sleep_ns);
        if (getpid() != own)
            return PASS;
    }
    if (wait->has_waited)
        plimsoll_show_waiting(wait->gpu, -1);
    return decision;
}

static void enter(struct plimsoll_launch *launch) {
    if (!is_under_gate())
        return;
    struct wait wait = {.stream = launch->stream};
    wait.gpu = plimsoll_gpu_of_stream(launch->stream, &wait.context);
    if (wait.context == 0 || wait.gpu < 0)
        return;
    launch->is_held = true;
    launch->cancelling = plimsoll_hold_thread();
    plimsoll_poller_need();
    enum decision decision = await_decision(&wait);
    struct plimsoll_meter *meter = decision == PASS ? NULL : plimsoll_use_meter(wait.context, wait.gpu);
    if (!meter)
        return;
    launch->measurement.is_sample = decision == SAMPLE;
    if (decision == SAMPLE)
        await_room(meter, wait.word);
    plimsoll_measure(&launch->measurement, meter, wait.context, launch->stream);
}

void plimsoll_enter_launch(struct plimsoll_launch *launch, CUstream stream) {
    int saved = errno;
    *launch = (struct plimsoll_launch){.stream = stream};
    if (plimsoll_depth++ == 0 && !plimsoll_is_capturing(stream))
        enter(launch);
    errno = saved;
}

CUresult plimsoll_leave_launch(struct plimsoll_launch *launch, CUresult result) {
    if (launch->measurement.meter)
        plimsoll_measured_launch(&launch->measurement, launch->stream, result);
    if (launch->is_held)
        plimsoll_release_thread(launch->cancelling);
    plimsoll_depth--;
    return result;
}

/* --- the decision ----------------------------------------------------------------------------------------
 */

/* `is_polled`: all events were polled just before, so a bound that has passed counts. A launch that has
 * waited is metered, also if the gate opened meanwhile. */
static enum decision decide(struct wait *wait, bool is_polled) {
    uint64_t now_ns = plimsoll_now_ns();
    uint32_t state = plimsoll_gate_state(wait->word, now_ns);
    bool is_open = state == PLIMSOLL_GATE_OPEN;
    if (is_open && !wait->has_waited)
        return is_sample_due() ? SAMPLE : PASS;
    pthread_mutex_lock(&SHARES->lock);
    plimsoll_bursts_meter(!is_open, now_ns);
    wait->sleep_ns = is_open ? 0 : behind_closed_gate(wait, state == PLIMSOLL_GATE_SHUT, is_polled, now_ns);
    pthread_mutex_unlock(&SHARES->lock);
    return wait->sleep_ns > 0 ? WAIT : METER;
}

/* --- behind a metered or shut gate -----------------------------------------------------------------------
 *
 * Each rule results in the time to sleep, or in 0 if the launch may go. All need the lock.
 */

/* A process that was woken has reported its progress within this time. */
#define ANSWER_NS 300000
/* The bounds of one sleep: the estimated event may come sooner. */
#define SHORTEST_NS 50000
#define LONGEST_NS 50000000

#define SLOWER_MOST 64.0

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most) {
    return value < least ? least : value > most ? most : value;
}

static uint64_t until(uint64_t moment_ns, uint64_t now_ns) {
    return clamp(plimsoll_later(moment_ns, now_ns) - now_ns, SHORTEST_NS, LONGEST_NS);
}

/* Nothing executes, so the awaited work has ended. Learns how much later than expected that was. The expected
 * time includes one slice more. Without it, the short time until the end was noticed would seem long beside a
 * short queue. */
static void conclude(struct wait *wait, bool is_shut, uint64_t now_ns) {
    if (wait->since_ns && is_shut) {
        double slower =
            1.5 * (double)(now_ns - wait->since_ns) / (double)(wait->expected_ns + plimsoll_gate_slice_ns());
        SHARES->waits.slower = slower < 1 ? 1 : slower > SLOWER_MOST ? SLOWER_MOST : slower;
    }
    wait->since_ns = wait->woken_ns = 0;
    SHARES->waits.in_vain = 0;
    SHARES->waits.is_following = false;
}

/* Launches go one by one as long as the other processes execute, because the work that those have queued may
 * need nothing but this process's next launches. Then all processes wait. */
static uint64_t follow(struct wait *wait, uint64_t now_ns) {
    if (!wait->woken_ns) {
        wait->woken_ns = now_ns;
        plimsoll_gate_wake();
    }
    return now_ns < wait->woken_ns + ANSWER_NS ? until(wait->woken_ns + ANSWER_NS, now_ns) : 0;
}

/* The launch waits until half of the allowed queue is left where no other process runs, because a neighbour's
 * gate may shut at any moment. Or it waits until all runnable work has run, because the rest may wait for
 * this very launch. */
static uint64_t until_room_ns(int gpu, uint64_t queued_ns, uint64_t ahead_ns) {
    uint64_t drained_ns = queued_ns > ahead_ns / 2 ? queued_ns - ahead_ns / 2 : 0;
    return clamp(plimsoll_sooner(drained_ns, plimsoll_runnable_ns(gpu)), SHORTEST_NS, LONGEST_NS);
}

/* Behind a metered gate, and behind a shut one that lets launches pass, a launch goes while the queue is
 * short and an event can follow the launch. So many streams cost no accuracy. While the length of a launch is
 * unknown, the first launch counts as the whole allowed queue. */
static uint64_t behind_closed_gate(struct wait *wait, bool is_shut, bool is_polled, uint64_t now_ns) {
    uint64_t ahead_ns = plimsoll_gate_ahead_ns();
    if (!plimsoll_container_executes(now_ns)) {
        conclude(wait, is_shut, now_ns);
        return is_shut ? LONGEST_NS : 0;
    }
    if (is_shut && SHARES->waits.is_following && !plimsoll_process_executes(now_ns))
        return follow(wait, now_ns);
    bool needs_room = !is_shut || plimsoll_lets_pass();
    uint64_t queued_ns = plimsoll_left_on_ns(wait->gpu, now_ns, ahead_ns);
    if (needs_room && queued_ns < ahead_ns && plimsoll_can_measure(wait->context, wait->stream)) {
        wait->since_ns = 0;
        return 0;
    }
    uint64_t bounded_ns = wait_bounded(wait, is_polled, now_ns);
    if (!needs_room || bounded_ns == 0)
        return bounded_ns;
    return plimsoll_sooner(bounded_ns, until_room_ns(wait->gpu, queued_ns, ahead_ns));
}

/* --- how long a launch waits while work executes ---------------------------------------------------------
 */

/* A launch waits this much longer than the queued work should take. */
#define PATIENCE_NS 3000000
/* Each launch that waited in vain doubles the time of the next, up to 64 times. */
#define DOUBLINGS_MOST 6
/* An executing process waits this many times longer while another process waits idle, because its work may
 * wait for that process. */
#define GIVES_WAY 4
#define SOON_NS 1000000

/* A factor between 1 and 1.5 that differs each time, so that threads do not wait in step. */
static double spread(uint64_t now_ns) {
    return 1.0 + (double)((now_ns * 2654435761u >> 8) & 1023) / 2048.0;
}

/* The launch begins to wait, or some of the queue is done. From here on it waits for the rest of the queue.
 * For other processes' work only the present moment is known. */
static void renew(struct wait *wait, uint64_t queued_ns, uint64_t now_ns) {
    uint64_t sharers = plimsoll_gate_sharers(), reached_ns = plimsoll_reached_ns();
    uint64_t sliced_ns = sharers * queued_ns + (sharers - 1) * plimsoll_gate_slice_ns();
    double expected_ns = (double)sliced_ns * spread(now_ns);
    if (!wait->since_ns) {
        wait->since_ns = wait->renewed_ns = now_ns;
        wait->expected_ns = (uint64_t)expected_ns;
    } else {
        wait->renewed_ns = reached_ns > wait->renewed_ns ? reached_ns : now_ns;
    }
    unsigned doublings = SHARES->waits.in_vain < DOUBLINGS_MOST ? SHARES->waits.in_vain : DOUBLINGS_MOST;
    double patience_ns = PATIENCE_NS + SHARES->waits.slower * expected_ns;
    wait->queued_ns = queued_ns;
    wait->until_ns = wait->renewed_ns + (uint64_t)(patience_ns * (double)(1u << doublings));
}

/* The time after which the queue may have drained, so that the decision can be made anew. */
static uint64_t until_done_ns(uint64_t queued_ns) {
    return clamp(plimsoll_gate_sharers() * queued_ns, SOON_NS, LONGEST_NS);
}

/* A launch whose bound has passed goes although the gate is shut. Other launches may pass too, until the work
 * that was unfinished then has ended. */
static uint64_t wait_bounded(struct wait *wait, bool is_polled, uint64_t now_ns) {
    uint64_t queued_ns = plimsoll_container_queued_ns();
    if (!wait->since_ns || queued_ns < wait->queued_ns)
        renew(wait, queued_ns, now_ns);
    bool gives_way = plimsoll_process_executes(now_ns) && plimsoll_others_wait_idle(now_ns);
    uint64_t patience_ns = (wait->until_ns - wait->renewed_ns) * (gives_way ? GIVES_WAY : 1);
    if (now_ns < wait->renewed_ns + patience_ns || !is_polled)
        return plimsoll_sooner(until(wait->renewed_ns + patience_ns, now_ns), until_done_ns(queued_ns));
    SHARES->waits.in_vain++;
    SHARES->waits.is_following = !plimsoll_process_executes(now_ns);
    wait->since_ns = 0;
    plimsoll_let_pass();
    return 0;
}

/* --- behind an open gate ---------------------------------------------------------------------------------
 *
 * Samples limit how much a program can queue, so that a new neighbour does not wait long.
 */

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

/* All threads share one counter. While the broker is lost, every launch comes here, whatever state the gate's
 * word has. */
static bool is_sample_due(void) {
    uint32_t left = __atomic_load_n(&SHARES->samples.passes_left, __ATOMIC_RELAXED);
    if (left > 0)
        __atomic_store_n(&SHARES->samples.passes_left, left - 1, __ATOMIC_RELAXED);
    return left == 0;
}

/* Needs the lock. The next sample comes soon while launches are long, or while nothing is known about
 * them. */
static void plan_sample(const struct plimsoll_meter *meter, uint64_t now_ns) {
    uint64_t each_ns = plimsoll_each_ns(meter, now_ns), passes = 1;
    if (meter->pace.average_ns)
        passes = plimsoll_sooner(plimsoll_gate_alone_ns() / SAMPLE_PARTS / each_ns | 1, PASSES_MOST);
    __atomic_store_n(&SHARES->samples.passes_each, (uint32_t)passes, __ATOMIC_RELAXED);
    __atomic_store_n(&SHARES->samples.passes_left, (uint32_t)passes - 1, __ATOMIC_RELAXED);
}

/* The time by which the queue passes what may be queued; UNKNOWN while nothing shows how long launches take.
 */
static uint64_t excess_ns(struct plimsoll_meter *meter) {
    plimsoll_poll_meter(meter);
    uint64_t now_ns = plimsoll_now_ns(), alone_ns = plimsoll_gate_alone_ns();
    pthread_mutex_lock(&SHARES->lock);
    bool is_known = meter->pace.average_ns > 0 || meter->events.count < FIRST_LAUNCHES;
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
    uint64_t most_ns = plimsoll_later(2 * meter->pace.average_ns, plimsoll_gate_alone_ns());
    pthread_mutex_unlock(&SHARES->lock);
    return excess < most_ns ? plimsoll_sooner(2 * excess, most_ns) : most_ns;
}

static uint64_t nap_ns(uint64_t excess) {
    return excess == UNKNOWN ? NAP_NS : plimsoll_sooner(plimsoll_later(excess, NAP_NS), LONGEST_NAP_NS);
}

/* Before a sample is launched: waits for a bounded time while too much is queued, and plans the next sample.
 * The wait ends when the gate's word is no longer `word`. The caller is one of the meter's users. */
static void await_room(struct plimsoll_meter *meter, uint32_t word) {
    uint64_t excess = excess_ns(meter), begun_ns = plimsoll_now_ns();
    uint64_t until_ns = begun_ns + patience_ns(meter, excess);
    while (excess > 0 && plimsoll_gate_word() == word && plimsoll_now_ns() < until_ns) {
        plimsoll_gate_sleep(word, nap_ns(excess));
        excess = excess_ns(meter);
    }
}
