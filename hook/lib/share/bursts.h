/* Bursts: how long this process has work on each GPU, and how much of that the GPU executes, told on its
 * page.
 *
 * All under plimsoll.shares.lock. While the gate is open nothing is told.
 */
#ifndef PLIMSOLL_BURSTS_H
#define PLIMSOLL_BURSTS_H

#include "state.h"

/* A launch found nothing unfinished, or made more of it: the burst lasts from the first such moment. */
void plimsoll_burst_launched(int gpu, uint64_t now_ns);

/* Work of the process began to execute. One that nothing was known to be launched for was blocked until then.
 */
void plimsoll_burst_executed(int gpu, uint64_t at_ns);

/* How long the first launch of a burst waits for a slice of its process, as a rule. */
uint64_t plimsoll_first_wait_ns(void);

/* Nothing tells yet when it began: it is taken to have by now, if it must have had a slice. */
void plimsoll_burst_presume(int gpu, uint64_t now_ns);

/* Some work ended; others of it may go on. */
void plimsoll_burst_ended(int gpu, uint64_t at_ns);

/* Under the lock: whether a meter's streams hold anything that executes. */
bool plimsoll_executes(const struct plimsoll_meter *meter);

/* Ends the burst if nothing on the GPU executes any more or waits for its slice. Where no end of it is known,
 * it was at `otherwise_ns`. */
void plimsoll_burst_settle(int gpu, uint64_t otherwise_ns);

/* From an opening of the gate on nothing is told; from its end on, what is unfinished then. */
void plimsoll_bursts_meter(bool is_metering, uint64_t now_ns);

/* Tells that this process looks after its work: who does not is stopped, and nothing is believed of it. */
void plimsoll_bursts_tell_look(uint64_t now_ns);

/* Tells how much is queued. */
void plimsoll_burst_tell_queue(int gpu);

/* Whether anything of the container executes, or waits for its slice, by its processes' pages: the very words
 * that the broker charges by. */
bool plimsoll_container_executes(uint64_t now_ns);
/* The same of this process alone. */
bool plimsoll_process_executes(uint64_t now_ns);
/* Whether another process of the container stands, and has nothing unfinished. */
bool plimsoll_others_stand_idle(uint64_t now_ns);

/* What is queued on the fullest of the container's GPUs, by all its processes. */
uint64_t plimsoll_container_queued_ns(void);

/* One thread more (1) or less (-1) of this process stands to launch there. Needs no lock. */
void plimsoll_burst_stand(int gpu, int change);

#endif
