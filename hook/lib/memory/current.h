/* Which GPU a call concerns, by the calling thread's current context or by a stream. */
#ifndef PLIMSOLL_CURRENT_H
#define PLIMSOLL_CURRENT_H

#include "driver/gpus.h"

/* The same for a caller that knows the current context; 0 for none. Takes it on the books if it is not there
 * yet. */
int plimsoll_gpu_of_current_context(uint64_t context);

int plimsoll_gpu_of_current(void);

/* Of a stream's context, which need not be the current one; and that context, 0 for none. */
int plimsoll_gpu_of_stream(CUstream stream, uint64_t *context);

#endif
