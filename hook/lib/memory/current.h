/* The context that a call concerns, and contexts that come and go without a hooked call. */
#ifndef PLIMSOLL_CURRENT_H
#define PLIMSOLL_CURRENT_H

#include "driver/gpus.h"

/* --- the GPU of a call, found by the calling thread's current context or by a stream --------------------
 */
/* The GPU of the current context, for a caller that knows that context (0 for none). A context that is not on
 * the books yet is taken on them. */
int plimsoll_gpu_of_current_context(uint64_t context);

int plimsoll_gpu_of_current(void);

/* Returns the GPU of a stream's context, and stores the context in `context`; 0 for none. That context need
 * not be the current one. */
int plimsoll_gpu_of_stream(CUstream stream, uint64_t *context);

/* --- contexts that come and go without a hooked call --------------------------------------------------
 */

/* After a retain: undoes every entry except that of the thread whose retain made the context. NULL: the
 * retain failed. */
void plimsoll_primary_entered(int gpu, CUcontext context);

/* Takes a context on the books that no hooked call made. NVIDIA's runtime, for example, may make one through
 * a private table. `context` is a result of plimsoll_owner_of. Costs some loads if the context is known. */
void plimsoll_context_seen(uint64_t context);

/* Queries whether the primary context on a GPU is still the known one. If not, gives back what was charged
 * with the known one, charges its successor, and returns true. Always calls the driver, so not for a fast
 * path. */
bool plimsoll_contexts_check(int gpu);

#endif
