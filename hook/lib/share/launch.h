/* The hooks of functions that put work on a GPU, or wait for it.
 *
 * While the gate is open, such a hook is four loads, a store and a jump to the driver. One launch in some
 * hundred takes the longer way, and so does every launch behind another gate: launch.c decides there what
 * becomes of it.
 */
#ifndef PLIMSOLL_LAUNCH_H
#define PLIMSOLL_LAUNCH_H

#include "driver/driver.h"
#include "share/work.h"

/* --- the longer way --------------------------------------------------------------------------------------
 */

/* A launch on the longer way. */
struct plimsoll_launch {
    CUstream stream;
    struct plimsoll_measurement measurement;
    bool is_held; /* this thread cannot be cancelled: the meter counts the thread, or the thread waits at the
                     gate */
    int cancelling; /* the thread's cancellation state, while `is_held` */
};

/* Before the driver's call that launches: waits at the gate where the gate says so. `stream` is the stream
 * that the driver's function means; for a function with per-thread default streams, the result of
 * plimsoll_per_thread. Does nothing in a call that the driver makes inside another one (plimsoll_depth), and
 * for a launch that is captured instead of executed. Call this without any lock. The other half must follow
 * in the same thread. Keeps errno. */
void plimsoll_enter_launch(struct plimsoll_launch *launch, CUstream stream);

/* After the driver's call, with its result. Returns that result. */
CUresult plimsoll_leave_launch(struct plimsoll_launch *launch, CUresult result);

/* --- behind an open gate ---------------------------------------------------------------------------------
 */

static inline bool plimsoll_is_gate_open(void) {
    const uint32_t *word = __atomic_load_n(&plimsoll.gate_word, __ATOMIC_RELAXED);
    return (__atomic_load_n(word, __ATOMIC_ACQUIRE) & PLIMSOLL_GATE_STATES) == PLIMSOLL_GATE_OPEN;
}

/* Whether a launch passes at once. Threads that count down at the same moment lose a count: the sample then
 * comes a little later. */
static inline bool plimsoll_launch_passes(void) {
    uint32_t left = __atomic_load_n(&plimsoll.shares.samples.passes_left, __ATOMIC_RELAXED);
    if (left == 0 || !plimsoll_is_gate_open())
        return false;
    __atomic_store_n(&plimsoll.shares.samples.passes_left, left - 1, __ATOMIC_RELAXED);
    return true;
}

/* The function where a hook continues: the driver's if `passes`, else the hook's own. */
static inline plimsoll_function plimsoll_next(enum plimsoll_index index, plimsoll_function gated,
                                              bool passes) {
    if (!passes)
        return gated;
    plimsoll_function driver = __atomic_load_n(&plimsoll.call[index], __ATOMIC_RELAXED);
    /* The driver is not found yet in a program that links it and has not called it. */
    return driver ? driver : gated;
}

/* --- whole hooks -----------------------------------------------------------------------------------------
 */

/* A hook that is hardly more than a jump to the driver where `passes` is true. The rest of the hook follows
 * as the body of a function of its own, so that behind an open gate it costs no stack frame of its size. */
#define PLIMSOLL_PASSING(symbol, passes, parameters, arguments)                                              \
    static CUresult gated_##symbol parameters;                                                               \
    CUresult symbol parameters {                                                                             \
        plimsoll_function next = plimsoll_next(HOOK_##symbol, (plimsoll_function)gated_##symbol, passes);    \
        return ((__typeof__(&symbol))next)arguments;                                                         \
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

/* The whole hook of a function that launches work. The driver may also wait in it until the work is done. */
#define PLIMSOLL_LAUNCHES_AND_SYNCS(symbol, stream, parameters, arguments)                                   \
    PLIMSOLL_PASSING(symbol, plimsoll_launch_passes(), parameters, arguments) {                              \
        struct plimsoll_launch launch;                                                                       \
        plimsoll_enter_launch(&launch, stream);                                                              \
        CUresult result = plimsoll_leave_launch(&launch, REAL(symbol) arguments);                            \
        plimsoll_after_sync();                                                                               \
        return result;                                                                                       \
    }

/* The whole hook of a function that waits and does nothing else to the GPU. `before` is a call of
 * plimsoll_before_sync, or (void)0 if the function waits for no stream's work. */
#define PLIMSOLL_SYNCS(symbol, before, parameters, arguments)                                                \
    PLIMSOLL_GATED(symbol, parameters, arguments) {                                                          \
        before;                                                                                              \
        CUresult result = REAL(symbol) arguments;                                                            \
        plimsoll_after_sync();                                                                               \
        return result;                                                                                       \
    }

#endif
