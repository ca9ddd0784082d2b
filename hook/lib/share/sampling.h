/* Sampling: how a program behind an open gate is kept from queueing more than a neighbour who comes should
 * wait for. One launch in some hundred is marked and looked at; the others pass.
 */
#ifndef PLIMSOLL_SAMPLING_H
#define PLIMSOLL_SAMPLING_H

#include "state.h"

/* Whether this launch is to be a sample. One count serves all threads, and each call counts. */
bool plimsoll_sample_is_due(void);

/* Before a sample is launched: waits, for a bounded time, while too much is queued, and plans the next
 * sample. Ends too when the gate's word is no longer `word`. The caller is one of the meter's users, without
 * the lock. */
void plimsoll_sample_await_room(struct plimsoll_meter *meter, uint32_t word);

#endif
