/* Syncing: a call of the program that waits for work, or that holds a stream up, has the ends of work marked
 * before it, and looked at after it.
 */
#ifndef PLIMSOLL_SYNCING_H
#define PLIMSOLL_SYNCING_H

#include "share/launching.h"

/* Before a call that waits for a stream, for the current context, or for anything else: what was launched
 * there and is followed by no mark yet, is. */
void plimsoll_before_sync(CUstream stream);
void plimsoll_before_sync_context(void);

/* A mark follows what was launched into a stream, if none does yet. For a thread that is about to use the
 * stream. */
void plimsoll_see_to_tail(CUstream stream);

/* After such a call: if nothing is unfinished, the burst ended. */
void plimsoll_after_sync(void);
/* After a query that says all is done. Programs ask over and over, so it does something once in a while. */
void plimsoll_after_query(void);

/* Before a call that puts something into a stream which executes nothing, and behind which it waits: the
 * stream's segment ends here. */
void plimsoll_before_block(CUstream stream);

/* The whole hook of a function that launches and, as far as the driver does, waits for it. */
#define PLIMSOLL_LAUNCHES_AND_SYNCS(symbol, stream, parameters, arguments)                                   \
    PLIMSOLL_PASSING(symbol, plimsoll_launch_passes(), parameters, arguments) {                              \
        struct plimsoll_launch launch;                                                                       \
        plimsoll_enter_launch(&launch, stream);                                                              \
        CUresult result = plimsoll_leave_launch(&launch, REAL(symbol) arguments);                            \
        plimsoll_after_sync();                                                                               \
        return result;                                                                                       \
    }

/* The whole hook of a function that waits and does nothing else to the GPU. `before` is one of the calls
 * above, or (void)0 where it waits for something that is no stream's. */
#define PLIMSOLL_SYNCS(symbol, before, parameters, arguments)                                                \
    PLIMSOLL_GATED(symbol, parameters, arguments) {                                                          \
        before;                                                                                              \
        CUresult result = REAL(symbol) arguments;                                                            \
        plimsoll_after_sync();                                                                               \
        return result;                                                                                       \
    }

#endif
