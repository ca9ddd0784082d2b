/* Work in streams: submitted in order, run on the GPU's timeline, which is one queue per process and GPU.
 *
 * Invariants: work is committed to the timeline in an order that respects every stream and every event;
 * data moves at the commit. Work that comes after a host function, a kernel that spins or another GPU's
 * event cannot be committed yet. It waits in its stream's list. A thread, the porter, starts when it is first
 * needed and commits waiting work. */
#ifndef PLIMSOLL_EMULATOR_STREAM_QUEUE_H
#define PLIMSOLL_EMULATOR_STREAM_QUEUE_H

#include "cuda/stream/work.h"

/* Submits work to a stream that is not capturing. May block while too much is queued, with the lock
 * released. */
CUresult queue_submit(CUstream stream, const struct work *work);
/* Sleeps until all work that was submitted to the stream before this call is done. Releases the lock
 * meanwhile. */
void queue_finish(CUstream stream);
/* The same for all streams of a context. */
void queue_finish_context(CUcontext context);
/* True if all work submitted to the stream is done. */
bool queue_is_done(CUstream stream);
/* Drops a stream's uncommitted work when its context dies. */
void queue_drop(CUstream stream);

#endif
