/* Calls of the program that wait for work or block a stream. Before such a call the ends of work get marks.
 * After the call the marks are polled. */
#ifndef PLIMSOLL_SYNCING_H
#define PLIMSOLL_SYNCING_H

#include "driver/cuda_api.h"

/* Before a call that waits for a stream or for the current context: marks the launches that no mark follows
 * yet. */
void plimsoll_before_sync(CUstream stream);
void plimsoll_before_sync_context(void);

/* After such a call, or after a query with the result that all work is done: ends the burst if nothing is
 * unfinished. */
void plimsoll_after_sync(void);

/* Before a call that puts into a stream something that executes nothing and blocks the work behind it: the
 * stream's segment ends here. */
void plimsoll_before_block(CUstream stream);

#endif
