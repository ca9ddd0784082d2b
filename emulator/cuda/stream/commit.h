/* Commits work to the timeline of its GPU, where it needs no thread of this process any more. The caller
 * holds the lock. */
#ifndef PLIMSOLL_EMULATOR_CUDA_STREAM_COMMIT_H
#define PLIMSOLL_EMULATOR_CUDA_STREAM_COMMIT_H

#include "cuda/stream/work.h"

enum { QUEUE_DEPTH = 1024 }; /* commits per GPU before a launch blocks; NVIDIA's queues are as deep */

/* For work that is next in its stream. */
void commit(CUstream stream, const struct work *work);

/* Waits until fewer than QUEUE_DEPTH commits of the GPU are unfinished. Releases the lock meanwhile. */
void commit_await_room(int gpu);

#endif
