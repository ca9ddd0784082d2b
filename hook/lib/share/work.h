/* The interface of the files that measure this process's work (the folder work/).
 *
 * Each context has a meter: what is known of its launches, by events of ours between and behind them. Polls
 * of these events date the work, and the process's page in `counts` reports how long it executed.
 */
#ifndef PLIMSOLL_WORK_H
#define PLIMSOLL_WORK_H

#include "state.h"

/* Makes this thread uncancellable. Call this before every section that takes plimsoll.shares.lock or makes
 * the thread a user of a meter: a thread that is cancelled inside, during a call of the kernel or the driver,
 * would keep the lock for ever. Returns the argument for plimsoll_release_thread. */
static inline int plimsoll_hold_thread(void) {
    int before = PTHREAD_CANCEL_ENABLE; /* before glibc 2.34 a program without threads gets no old state */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void plimsoll_release_thread(int before) {
    int ignored;
    pthread_setcancelstate(before, &ignored);
}

/* In the child of a fork, where the parent's work, captures and threads do not exist. */
void plimsoll_shares_in_child(void);

/* --- one launch; call these without the lock ------------------------------------------------------------ */

/* A launch between its two halves. All zeros: the launch is not measured. */
struct plimsoll_measurement {
    struct plimsoll_meter *meter; /* of the stream's context; NULL where the launch is not measured */
    uint64_t life;                /* the life of that meter */
    uint64_t entered_ns;          /* just before the driver's call */
    uint64_t begun; /* the serial of the event at the beginning of the segment, if this launch is the
                       segment's first; else 0 */
    bool is_sample; /* a sample behind an open gate */
};

/* Makes the caller a user of the meter of a context on a GPU of `limits`, until plimsoll_measure. Polls the
 * meter if a stream may have run dry: otherwise idle time would count as execution. NULL where there is no
 * memory for a meter. */
struct plimsoll_meter *plimsoll_use_meter(uint64_t context, int gpu);

/* The first half: counts a launch that goes to the driver next. `is_sample` is set before. */
void plimsoll_measure(struct plimsoll_measurement *measurement, struct plimsoll_meter *meter,
                      uint64_t context, CUstream stream);

/* The second half, if the first one found a meter. Keeps errno. */
void plimsoll_measured_launch(const struct plimsoll_measurement *measurement, CUstream stream,
                              CUresult result);

/* --- the program's calls that wait for work or block a stream ------------------------------------------- */

/* Before a call that waits for a stream or for the current context: an event follows the launches that none
 * follows yet. */
void plimsoll_before_sync(CUstream stream);
void plimsoll_before_sync_context(void);

/* After such a call, or after a query with the result that all work is done: ends the burst if nothing is
 * unfinished. */
void plimsoll_after_sync(void);

/* Before a call that puts into a stream something that executes nothing and blocks the work behind it: the
 * stream's segment ends here. */
void plimsoll_before_block(CUstream stream);

/* An event follows a stream's tail, if there is one. For a thread that is about to use the stream. Call this
 * without the lock. */
void plimsoll_see_to_tail(CUstream stream);

/* --- contexts that end ---------------------------------------------------------------------------------- */

/* Before a context is destroyed, released or reset: makes every thread stop using our events in the context.
 * Waits up to a second for threads that use them. Unfinished work of the context counts as executing until
 * `plimsoll_work_context_ended`, which follows the driver's call, because that call may wait for the work.
 * Returns the GPU to pass to it; -1 if nothing is unfinished. */
int plimsoll_work_context_ends(uint64_t context);
void plimsoll_work_context_ended(int gpu);

/* A context ended without a hooked call. Its events ended with it. */
void plimsoll_work_context_lost(uint64_t context);

/* A context lives on after plimsoll_work_context_ends. A single event behind all unfinished work meters it.
 */
void plimsoll_work_context_stays(uint64_t context, int gpu);

/* --- the thread that polls while no thread of the program does ------------------------------------------ */

/* Starts the thread if this process has none. Costs one load if it runs, or if the container has no gate. */
void plimsoll_poller_need(void);

/* After a launch: wakes the thread if it rests and there is work. Costs one load if it does not rest. */
void plimsoll_poller_wake(void);

/* --- polls; call these without the lock ----------------------------------------------------------------- */

/* Polls the events of one context. The caller is one of the meter's users. */
void plimsoll_poll_meter(struct plimsoll_meter *meter);

/* Polls the events of all contexts. `is_end_likely`: the program waited for work or launches nothing more, so
 * an event follows each tail. */
void plimsoll_poll(bool is_end_likely);

/* --- the state of the work; these need plimsoll.shares.lock --------------------------------------------- */

/* The gate opened (`is_metering` is false) or closed. From an opening on, the page reports no burst. From a
 * closing on, the page reports what is unfinished then. */
void plimsoll_bursts_meter(bool is_metering, uint64_t now_ns);

/* Whether anything of the container executes or waits for its slice. The answer comes from the pages of the
 * container's processes, by which the broker charges too. */
bool plimsoll_container_executes(uint64_t now_ns);
/* The same question for this process alone. */
bool plimsoll_process_executes(uint64_t now_ns);
/* Whether another process of the container waits at the gate and has nothing unfinished. */
bool plimsoll_others_wait_idle(uint64_t now_ns);

/* The work queued on the fullest of the container's GPUs by all its processes, in ns. */
uint64_t plimsoll_container_queued_ns(void);

/* The least time for which this process's outstanding launches on a GPU will execute; `unknown_ns` while that
 * cannot be estimated. */
uint64_t plimsoll_left_on_ns(int gpu, uint64_t now_ns, uint64_t unknown_ns);

/* The part of that work in streams that nothing blocks. */
uint64_t plimsoll_runnable_ns(int gpu);

/* Whether an event of ours can follow a launch into the stream, soon or behind later launches. If not, all
 * events are under way, and the launch would pass unmetered. */
bool plimsoll_can_measure(uint64_t context, CUstream stream);

/* When an event of this process was last reached; 0 for never. */
uint64_t plimsoll_reached_ns(void);

/* Until the work that executes now has ended, plimsoll_lets_pass is true. */
void plimsoll_let_pass(void);
bool plimsoll_lets_pass(void);

/* The length of one launch in the context: the average, or more while launches wait behind one that is
 * longer. */
uint64_t plimsoll_each_ns(const struct plimsoll_meter *meter, uint64_t now_ns);

/* The least time for which the context's outstanding launches will execute: each takes the average, or more
 * behind a launch that is longer. */
uint64_t plimsoll_left_ns(const struct plimsoll_meter *meter, uint64_t now_ns);

/* A thread more (1) or less (-1) of this process waits at the gate to launch on the GPU. Needs no lock. */
void plimsoll_show_waiting(int gpu, int change);

#endif
