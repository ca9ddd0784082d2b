/* Syncing: a call of the program that waits for work, or that holds a stream up, has the ends of work marked
 * before it, and looked at after it.
 */
#ifndef PLIMSOLL_SYNCING_H
#define PLIMSOLL_SYNCING_H

#include "driver/cuda_api.h"

/* Before a call that waits for a stream, for the current context, or for anything else: what was launched
 * there and is followed by no mark yet, is. */
void plimsoll_before_sync(CUstream stream);
void plimsoll_before_sync_context(void);

/* After such a call: if nothing is unfinished, the burst ended. */
void plimsoll_after_sync(void);
/* After a query that says all is done. Programs ask over and over, so it does something once in a while. */
void plimsoll_after_query(void);

/* Before a call that puts something into a stream which executes nothing, and behind which it waits: the
 * stream's segment ends here. */
void plimsoll_before_block(CUstream stream);

#endif
