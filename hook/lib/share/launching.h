/* The two halves of every hook that puts work on a GPU or waits for it: obey the container's gate, and meter.
 *
 * While the gate is open a hook is two loads, a store and a jump to the driver, and one launch in some
 * hundred is sampled. Else a launch may stand before it, and leaves marks behind by which its execution is
 * told. All of it is nothing to a call that the driver makes itself inside another (plimsoll_depth), and to
 * one that is captured instead of run.
 */
#ifndef PLIMSOLL_LAUNCHING_H
#define PLIMSOLL_LAUNCHING_H

#include "driver/driver.h"
#include "driver/gpus.h"

/* One launch between its two halves. */
struct plimsoll_launch {
    struct plimsoll_meter *meter; /* of the stream's context; NULL where this launch is not metered */
    CUstream stream;
    uint64_t life;       /* of that meter */
    uint64_t entered_ns; /* CLOCK_MONOTONIC just before the driver's call */
    uint64_t begun; /* the serial of the mark at the beginning of its segment, if it is the first; else 0 */
    bool is_sample; /* behind an open gate */
    int cancelling; /* the thread's state of cancellation, while `is_held` */
    bool is_held;   /* this thread cannot be cancelled: it is counted in the meter, or stands */
};

static inline bool plimsoll_is_gate_open(void) {
    const uint32_t *word = __atomic_load_n(&plimsoll.gate_word, __ATOMIC_RELAXED);
    return (__atomic_load_n(word, __ATOMIC_ACQUIRE) & PLIMSOLL_GATE_STATES) == PLIMSOLL_GATE_OPEN;
}

/* Whether a launch needs nothing. Threads that count down at once lose a count: a sample comes a little
 * later. */
static inline bool plimsoll_launch_passes(void) {
    uint32_t left = __atomic_load_n(&plimsoll.shares.passes_left, __ATOMIC_RELAXED);
    if (left == 0 || !plimsoll_is_gate_open())
        return false;
    __atomic_store_n(&plimsoll.shares.passes_left, left - 1, __ATOMIC_RELAXED);
    return true;
}

/* Before the driver's call that launches; stands where the gate says so. `stream` is what the driver's
 * function means by it: of a function for per-thread default streams, what plimsoll_per_thread makes of it.
 * Call it without any lock. The other half must follow, in the same thread. Leaves errno alone. */
void plimsoll_enter_launch(struct plimsoll_launch *launch, CUstream stream);

/* After the call, with what it returned; returns that. */
CUresult plimsoll_leave_launch(struct plimsoll_launch *launch, CUresult result);

/* Where a hook goes on: to the driver's function if it passes, else to what it does itself. */
static inline plimsoll_function plimsoll_way(enum plimsoll_index index, plimsoll_function gated,
                                             bool passes) {
    if (!passes)
        return gated;
    plimsoll_function driver = __atomic_load_n(&plimsoll.call[index], __ATOMIC_RELAXED);
    return driver ? driver : gated; /* not found yet: a program that links the driver, and never called it */
}

/* A hook that is hardly more than a jump to the driver where `passes` says so. What it does otherwise
 * follows as the body of a function of its own, so that it costs the open gate not even a stack frame. */
#define PLIMSOLL_PASSING(symbol, passes, parameters, arguments)                                              \
    static CUresult gated_##symbol parameters;                                                               \
    CUresult symbol parameters {                                                                             \
        plimsoll_function way = plimsoll_way(HOOK_##symbol, (plimsoll_function)gated_##symbol, passes);      \
        return ((__typeof__(&symbol))way)arguments;                                                          \
    }                                                                                                        \
    static CUresult gated_##symbol parameters

#define PLIMSOLL_GATED(symbol, parameters, arguments)                                                        \
    PLIMSOLL_PASSING(symbol, plimsoll_is_gate_open(), parameters, arguments)

/* The whole hook of a function that launches. */
#define PLIMSOLL_LAUNCHES(symbol, stream, parameters, arguments)                                             \
    PLIMSOLL_PASSING(symbol, plimsoll_launch_passes(), parameters, arguments) {                              \
        struct plimsoll_launch launch;                                                                       \
        plimsoll_enter_launch(&launch, stream);                                                              \
        return plimsoll_leave_launch(&launch, REAL(symbol) arguments);                                       \
    }

#endif
