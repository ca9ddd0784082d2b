/* How far a program may be ahead of its GPU behind a metered gate: what is queued and not done is bounded, so
 * that others, when their turn comes, wait for little, and the GPU never for the program.
 */
#ifndef PLIMSOLL_RUN_AHEAD_H
#define PLIMSOLL_RUN_AHEAD_H

#include "state.h"

/* True: one launch more may be queued now. False: that was waited for, and the gate is to be looked at again.
 */
bool plimsoll_wait_to_queue(struct plimsoll_meter *meter, uint32_t word);

#endif
