/* The stream captures that are under way in this process, and the one short query that must never meet a
 * capture.
 *
 * While the gate is open, the library finds out what a context was given by recording an event in the whole
 * context (cuCtxRecordEvent). Such a record breaks every capture under way in the context. So the querying
 * thread checks the captures first, and a capture that begins meanwhile waits for the query, about a
 * microsecond. Each side raises its own flag before it reads the other's (Dekker), and the querying thread
 * gives way.
 */
#ifndef PLIMSOLL_CAPTURES_H
#define PLIMSOLL_CAPTURES_H

#include "state.h"

/* Whether a capture is under way, or about to begin, in any context. */
static inline bool plimsoll_captures_under_way(void) {
    return __atomic_load_n(&plimsoll.captures.under_way, __ATOMIC_SEQ_CST) > 0;
}

/* A capture ended, or its stream or context did. */
static inline void plimsoll_capture_gone(void) {
    __atomic_fetch_sub(&plimsoll.captures.under_way, 1, __ATOMIC_SEQ_CST);
}

static inline void plimsoll_end_query(void) {
    __atomic_fetch_sub(&plimsoll.captures.queries, 1, __ATOMIC_SEQ_CST);
}

/* Begins a query. True: no capture begins until plimsoll_end_query, so call the driver once and be quick.
 * False: a capture is under way, and the driver must not be queried. */
static inline bool plimsoll_begin_query(void) {
    __atomic_fetch_add(&plimsoll.captures.queries, 1, __ATOMIC_SEQ_CST);
    if (!plimsoll_captures_under_way())
        return true;
    plimsoll_end_query();
    return false;
}

#endif
