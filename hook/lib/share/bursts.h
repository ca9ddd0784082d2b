/* Bursts: how long this process has work on each GPU, and how much of that time the GPU executes the work.
 * The process's page in `counts` reports both.
 *
 * Every function needs plimsoll.shares.lock unless its comment says otherwise. While the gate is open, the
 * page reports nothing.
 */
#ifndef PLIMSOLL_BURSTS_H
#define PLIMSOLL_BURSTS_H

#include "state.h"

/* A launch began. If nothing was unfinished on the GPU, the burst begins at `now_ns`. */
void plimsoll_burst_launched(int gpu, uint64_t now_ns);

/* Work of this process began to execute. If no launch is known for the work, it was blocked until `at_ns`,
 * and the burst begins there. */
void plimsoll_burst_executed(int gpu, uint64_t at_ns);

/* The time for which the first launch of a burst usually waits for a slice of its process. */
uint64_t plimsoll_first_wait_ns(void);

/* No mark shows yet when the burst began to execute. Assume that execution has begun if the process must have
 * had a slice by now. */
void plimsoll_burst_presume(int gpu, uint64_t now_ns);

/* Some work ended at `at_ns`. Other work of the burst may continue. */
void plimsoll_burst_ended(int gpu, uint64_t at_ns);

/* Whether any stream of a meter executes. Needs the lock. */
bool plimsoll_executes(const struct plimsoll_meter *meter);

/* Ends the burst if nothing on the GPU executes or waits for its slice. If no end is known, the burst ended
 * at `otherwise_ns`. */
void plimsoll_burst_settle(int gpu, uint64_t otherwise_ns);

/* The gate opened (`is_metering` is false) or closed. From an opening on, the page reports no burst. From a
 * closing on, the page reports what is unfinished then. */
void plimsoll_bursts_meter(bool is_metering, uint64_t now_ns);

/* Reports that this process polls its work. Readers take a process without such reports for stopped, and
 * ignore its page. */
void plimsoll_bursts_tell_poll(uint64_t now_ns);

/* Reports how much work is queued on the GPU. */
void plimsoll_burst_tell_queue(int gpu);

/* Whether anything of the container executes or waits for its slice. The answer comes from the pages of the
 * container's processes, by which the broker charges too. */
bool plimsoll_container_executes(uint64_t now_ns);
/* The same question for this process alone. */
bool plimsoll_process_executes(uint64_t now_ns);
/* Whether another process of the container stands at the gate and has nothing unfinished. */
bool plimsoll_others_stand_idle(uint64_t now_ns);

/* The work queued on the fullest of the container's GPUs by all its processes, in ns. */
uint64_t plimsoll_container_queued_ns(void);

/* A thread more (1) or less (-1) of this process stands at the gate to launch on the GPU. Needs no lock. */
void plimsoll_burst_stand(int gpu, int change);

#endif
