/* Contexts that come and go without a call of a hook. */
#ifndef PLIMSOLL_UNSEEN_H
#define PLIMSOLL_UNSEEN_H

#include "state.h"

/* All leave again but the one that made the context; NULL: the retain failed. */
void plimsoll_primary_entered(int gpu, CUcontext context);

/* Takes a context on the books that no hook saw being made, since the program got it by a way of its own, as
 * NVIDIA's runtime may through a private table. `context` owns what is allocated in it (plimsoll_owner_of).
 * Some loads when it is known. */
void plimsoll_context_seen(uint64_t context);

/* Asks the driver whether the primary context on a GPU is still the one that is known; if not, what was
 * charged with that goes back, and its successor is charged. True if so. Asks in every case: not for a path
 * that must be fast. */
bool plimsoll_contexts_look(int gpu);

#endif
