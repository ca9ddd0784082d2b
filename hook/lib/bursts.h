/* Bursts: how long this process keeps its GPUs busy, told by events behind its launches. */
#ifndef PLIMSOLL_BURSTS_H
#define PLIMSOLL_BURSTS_H

#include "state.h"

uint64_t plimsoll_now_ns(void);

/* --- under plimsoll.shares.lock ------------------------------------------------------------------------ */

/* A context has work from `begun_ns` on; a burst of the process's begins with the first such context. */
void plimsoll_burst_begin(struct plimsoll_meter *meter, uint64_t begun_ns);

/* Corrects the beginning of a burst that is under way, to a later moment, which may be as late as
 * `latest_ns`. */
void plimsoll_burst_begin_later(struct plimsoll_meter *meter, uint64_t begun_ns, uint64_t latest_ns);

/* Ends the burst if nothing of the context is unfinished any more. What no event follows, since the driver
 * records none, counts as done when it should be, by the average. */
void plimsoll_burst_settle(struct plimsoll_meter *meter, uint64_t now_ns);

/* Ends it in any case, now. */
void plimsoll_burst_abandon(struct plimsoll_meter *meter);

/* Remembers an event of ours that was just recorded. */
void plimsoll_burst_mark(struct plimsoll_meter *meter, const struct plimsoll_mark *mark);

/* When all that is outstanding should be done, by the average. */
uint64_t plimsoll_burst_due_ns(const struct plimsoll_meter *meter);

/* --- with the lock released ------------------------------------------------------------------------------
 */

/* Asks the driver which of the context's marks are done, and settles. `is_end_likely`: the program waited for
 * something, or launches nothing more. */
void plimsoll_burst_look(struct plimsoll_meter *meter, bool is_end_likely);

/* The same for all contexts. Returns whether anything is still unfinished. */
bool plimsoll_bursts_look(bool is_end_likely);

#endif
