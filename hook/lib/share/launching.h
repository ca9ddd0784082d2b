/* The two halves of every hook that puts work on a GPU or waits for it: obey the container's gate, and meter.
 *
 * While the gate is open a hook is two loads, a store and a jump to the driver, and one launch in some
 * hundred is sampled. Else a launch may stand before it, and leaves marks behind by which its execution is
 * told. All of it is nothing to a call that the driver makes itself inside another (plimsoll_depth), and to
 * one that is captured instead of run.
 */
#ifndef PLIMSOLL_LAUNCHING_H
#define PLIMSOLL_LAUNCHING_H

#include "state.h"

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

/* Before the driver's call that launches; stands where the gate says so. `stream` is what the driver's
 * function means by it: of a function for per-thread default streams, what plimsoll_per_thread makes of it.
 * Call it without any lock. The other half must follow, in the same thread. Leaves errno alone. */
void plimsoll_enter_launch(struct plimsoll_launch *launch, CUstream stream);

/* After the call, with what it returned; returns that. */
CUresult plimsoll_leave_launch(struct plimsoll_launch *launch, CUresult result);

#endif
