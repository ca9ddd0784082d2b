/* The GPU that a call concerns, found by the calling thread's current context or by a stream. */
#ifndef PLIMSOLL_CURRENT_H
#define PLIMSOLL_CURRENT_H

#include "driver/gpus.h"

/* The GPU of the current context, for a caller that knows that context (0 for none). A context that is not on
 * the books yet is taken on them. */
int plimsoll_gpu_of_current_context(uint64_t context);

int plimsoll_gpu_of_current(void);

/* Returns the GPU of a stream's context, and stores the context in `context`; 0 for none. That context need
 * not be the current one. */
int plimsoll_gpu_of_stream(CUstream stream, uint64_t *context);

#endif
