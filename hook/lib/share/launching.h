/* The two halves of every hook that puts work on a GPU or waits for work: the first obeys the container's
 * gate, and both meter.
 *
 * While the gate is open, a hook is four loads, a store and a jump to the driver (hooks/gated.h), and one
 * launch in some hundred is sampled. Otherwise the launch may stand at the gate, and marks behind it show
 * when it executed. The halves do nothing in a call that the driver makes inside another one
 * (plimsoll_depth), and nothing for a launch that is captured instead of executed.
 */
#ifndef PLIMSOLL_LAUNCHING_H
#define PLIMSOLL_LAUNCHING_H

#include "state.h"

/* A launch between its two halves. */
struct plimsoll_launch {
    struct plimsoll_meter
        *meter; /* the meter of the stream's context; NULL where this launch is not metered */
    CUstream stream;
    uint64_t life;       /* the life of that meter */
    uint64_t entered_ns; /* CLOCK_MONOTONIC just before the driver's call */
    uint64_t begun; /* the serial of the mark at the beginning of the segment, if this launch is the segment's
                       first; else 0 */
    bool is_sample; /* a sample behind an open gate */
    int cancelling; /* the thread's cancellation state, while `is_held` */
    bool is_held; /* this thread cannot be cancelled: the meter counts the thread, or the thread stands at the
                     gate */
};

/* Before the driver's call that launches: stands at the gate where the gate says so. `stream` is the stream
 * that the driver's function means; for a function with per-thread default streams, the result of
 * plimsoll_per_thread. Call this without any lock. The other half must follow in the same thread. Keeps
 * errno. */
void plimsoll_enter_launch(struct plimsoll_launch *launch, CUstream stream);

/* After the driver's call, with its result. Returns that result. */
CUresult plimsoll_leave_launch(struct plimsoll_launch *launch, CUresult result);

#endif
