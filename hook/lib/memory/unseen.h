/* Contexts that come and go without a hooked call. */
#ifndef PLIMSOLL_UNSEEN_H
#define PLIMSOLL_UNSEEN_H

#include "state.h"

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
