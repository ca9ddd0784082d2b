/* What every hook does that puts work on a GPU or waits for it: obey the container's gate, and meter.
 *
 * While the gate is open a hook is one load and the driver's call. Else a launch may wait before it, and
 * leaves behind how long the GPU is busy with it. All of it is nothing to a call that the driver makes itself
 * inside another (plimsoll_depth), and to one that is captured instead of run.
 */
#ifndef PLIMSOLL_LAUNCHING_H
#define PLIMSOLL_LAUNCHING_H

#include "driver.h"
#include "gpus.h"

/* One launch between its two halves. */
struct plimsoll_launch {
    struct plimsoll_meter *meter; /* of the stream's context; NULL where this launch is not metered */
    CUstream stream;
    uint64_t entered_ns; /* CLOCK_MONOTONIC just before the driver's call; where a burst begins with it */
};

/* Whether a launch needs nothing: one load. */
static inline bool plimsoll_is_gate_open(void) {
    return (__atomic_load_n(plimsoll.gate_word, __ATOMIC_ACQUIRE) & PLIMSOLL_GATE_STATES) ==
           PLIMSOLL_GATE_OPEN;
}

/* Before the driver's call that launches; waits where the gate says so. `stream` is what the driver's
 * function means by it: of a function for per-thread default streams, what plimsoll_per_thread makes of it.
 * Call it without any lock. The other half must follow, in the same thread. Leaves errno alone. */
void plimsoll_enter_launch(struct plimsoll_launch *launch, CUstream stream);

/* After the call, with what it returned; returns that. */
CUresult plimsoll_leave_launch(struct plimsoll_launch *launch, CUresult result);

/* Before a call that waits for a stream, for the current context, or for anything else: what was launched
 * there and is followed by no event of ours yet, is. */
void plimsoll_before_sync(CUstream stream);
void plimsoll_before_sync_context(void);

/* After such a call, or a query that says all is done: if nothing is unfinished, the burst ended. */
void plimsoll_after_sync(void);

static inline CUresult plimsoll_leave_sync(CUresult result) {
    plimsoll_after_sync();
    return result;
}

/* The body of a hook that launches. */
#define PLIMSOLL_LAUNCH(symbol, stream, ...)                                                                 \
    do {                                                                                                     \
        struct plimsoll_launch launch;                                                                       \
        if (plimsoll_is_gate_open())                                                                         \
            return REAL(symbol)(__VA_ARGS__);                                                                \
        plimsoll_enter_launch(&launch, stream);                                                              \
        return plimsoll_leave_launch(&launch, REAL(symbol)(__VA_ARGS__));                                    \
    } while (0)

/* The body of a hook that waits and does nothing else. `before` is one of the calls above, or (void)0 where
 * it waits for something that is no stream's: PLIMSOLL_SYNC(cuStreamQuery, plimsoll_before_sync(hStream),
 * hStream)
 */
#define PLIMSOLL_SYNC(symbol, before, ...)                                                                   \
    do {                                                                                                     \
        if (plimsoll_is_gate_open())                                                                         \
            return REAL(symbol)(__VA_ARGS__);                                                                \
        before;                                                                                              \
        return plimsoll_leave_sync(REAL(symbol)(__VA_ARGS__));                                               \
    } while (0)

#endif
