/* Contexts: what each costs, and what ends with it. */
#ifndef PLIMSOLL_CONTEXTS_H
#define PLIMSOLL_CONTEXTS_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_api.h"

/* What a new context on a GPU costs, as far as that was measured; 0 for a GPU that is not in `limits`. */
uint64_t plimsoll_context_bytes(int gpu);

/* After the driver made, or ended, a context of either kind. */
void plimsoll_context_made(int gpu);
void plimsoll_context_ended(int gpu);

/* --- primary contexts (primaries.c) --- */

/* The primary context on a GPU of `limits` while this process holds it, or 0. */
uint64_t plimsoll_primary_of_gpu(int gpu);

/* Around a retain. A retain makes the context or finds it made; only the driver knows, and only afterwards.
 * So each enters, the first one charged. False if the line forbids. */
bool plimsoll_primary_enter(int gpu, const char *function);
/* All leave again but the one that made the context; NULL: the retain failed. */
void plimsoll_primary_entered(int gpu, CUcontext context);

/* After the driver ended it: what it held, and its own charge, go back. */
void plimsoll_primary_end(int gpu);

/* --- contexts that come and go unseen (unseen.c) --- */

/* Takes a context on the books that no hook saw being made, since the program got it by a way of its own, as
 * NVIDIA's runtime may through a private table. `context` owns what is allocated in it (plimsoll_owner_of).
 * Some loads when it is known. */
void plimsoll_context_seen(uint64_t context);

/* Asks the driver whether the primary context on a GPU is still the one that is known; if not, what was
 * charged with that goes back, and its successor is charged. True if so. Asks in every case: not for a path
 * that must be fast. */
bool plimsoll_contexts_look(int gpu);

#endif
