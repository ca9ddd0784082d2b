/* Sampling limits how much a program behind an open gate can queue, so that a new neighbour does not wait
 * long. About one launch in a hundred is marked and polled. The others pass. */
#ifndef PLIMSOLL_SAMPLING_H
#define PLIMSOLL_SAMPLING_H

#include "state.h"

/* Whether this launch is to be a sample. All threads share one counter, and each call decrements it. */
bool plimsoll_sample_is_due(void);

/* Before a sample is launched: waits for a bounded time while too much is queued, and plans the next sample.
 * The wait ends when the gate's word is no longer `word`. The caller is one of the meter's users, and does
 * not hold the lock. */
void plimsoll_sample_await_room(struct plimsoll_meter *meter, uint32_t word);

#endif
