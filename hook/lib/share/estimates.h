/* Estimates of how much work is queued and how long the work will take. Every function needs
 * plimsoll.shares.lock. */
#ifndef PLIMSOLL_ESTIMATES_H
#define PLIMSOLL_ESTIMATES_H

#include "state.h"

/* The length of one launch in the context: the average, or more while launches wait behind one that is
 * longer. */
uint64_t plimsoll_each_ns(const struct plimsoll_meter *meter, uint64_t now_ns);

/* Whether the outstanding launches can be estimated. They cannot before the first few launches of a context
 * have ended, nor while the foremost of many launches in one stream is long overdue. */
bool plimsoll_is_known(const struct plimsoll_meter *meter, uint64_t now_ns);

/* The outstanding launches in streams that nothing blocks. Launches without a mark behind them are left
 * out. */
unsigned plimsoll_runnable(const struct plimsoll_meter *meter);

/* Whether any work is not known to be done, whether it executes or not. */
bool plimsoll_has_work(void);

/* The launches that are not known to be done. */
unsigned plimsoll_outstanding(const struct plimsoll_meter *meter);

/* The least time for which the outstanding launches will execute: each takes the average, or more behind a
 * launch that is longer. */
uint64_t plimsoll_left_ns(const struct plimsoll_meter *meter, uint64_t now_ns);

/* The time that the outstanding launches of all meters on one GPU should take together, by their averages. */
uint64_t plimsoll_queued_ns(int gpu);

#endif
