/* How much work is queued, and how long it will take. All under plimsoll.shares.lock. */
#ifndef PLIMSOLL_ESTIMATES_H
#define PLIMSOLL_ESTIMATES_H

#include "state.h"

/* The length of a launch of the context, by the average; more where others wait behind one that is longer. */
uint64_t plimsoll_each_ns(const struct plimsoll_meter *meter, uint64_t now_ns);

/* Whether one can tell what the outstanding ones will take: not before the first few of a context have ended,
 * nor while the foremost of many in one stream should have ended long ago. */
bool plimsoll_is_known(const struct plimsoll_meter *meter, uint64_t now_ns);

/* Launches of these whose streams nothing holds up; those that no mark follows are left out. */
unsigned plimsoll_runnable(const struct plimsoll_meter *meter);

/* Whether anything is not known to be done, executing or not. */
bool plimsoll_has_work(void);

/* Launches that are not known to be done. */
unsigned plimsoll_outstanding(const struct plimsoll_meter *meter);

/* For how long what is outstanding will execute at least: each launch as long as the average, and longer
 * behind one that is. */
uint64_t plimsoll_left_ns(const struct plimsoll_meter *meter, uint64_t now_ns);

/* The time that all meters' outstanding launches on one GPU should take together, by their averages. */
uint64_t plimsoll_queued_ns(int gpu);

#endif
