/* Work in streams: handed over in order, run on the GPU's timeline, which is one queue per process and GPU.
 *
 * What always holds: work is committed to the timeline in an order that respects every stream and every
 * event; data moves at the commit. Work that cannot be committed yet, because it comes after a host function,
 * a kernel that spins or another GPU's event, waits in its stream's list, and one thread, started when first
 * needed, brings it on. */
#ifndef PLIMSOLL_EMULATOR_STREAM_QUEUE_H
#define PLIMSOLL_EMULATOR_STREAM_QUEUE_H

#include "cuda/stream/work.h"

/* Hands work to a stream that is not capturing. May block while too much is queued, with the lock released.
 */
CUresult queue_submit(CUstream stream, const struct work *work);
/* Sleeps until all that a stream was handed before this call has been done; releases the lock meanwhile. */
void queue_finish(CUstream stream);
/* The same for all streams of a context. */
void queue_finish_context(CUcontext context);
/* Is a stream done with all it was handed? */
bool queue_is_done(CUstream stream);
/* Drops what a stream has not committed, for a context that dies. */
void queue_drop(CUstream stream);

#endif
