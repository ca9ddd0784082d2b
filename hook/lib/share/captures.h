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

#include <stdbool.h>

/* Whether a capture is under way, or about to begin, in any context. */
bool plimsoll_captures_under_way(void);

/* Begins a query. True: no capture begins until plimsoll_end_query, so call the driver once and be quick.
 * False: a capture is under way, and the driver must not be queried. */
bool plimsoll_begin_query(void);
void plimsoll_end_query(void);

/* A capture ended together with its stream or context. */
void plimsoll_capture_gone(void);

/* In a forked child: the parent's captures do not exist here. */
void plimsoll_captures_reset(void);

#endif
