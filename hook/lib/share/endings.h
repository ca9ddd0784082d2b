/* Contexts that end, with or without a hooked call. Their meters end before them. */
#ifndef PLIMSOLL_ENDINGS_H
#define PLIMSOLL_ENDINGS_H

#include <stdint.h>

/* Before a context is destroyed, released or reset: makes every thread stop using our events in the context.
 * Waits up to a second for threads that use them. Unfinished work of the context counts as executing until
 * `plimsoll_bursts_forgotten`, which follows the driver's call, because that call may wait for the work.
 * Returns the GPU to pass to it; -1 if nothing is unfinished. */
int plimsoll_bursts_forget(uint64_t context);

void plimsoll_bursts_forgotten(int gpu);

/* A context ended without a hooked call. Its events ended with it. */
void plimsoll_bursts_lost(uint64_t context);

/* A context lives on after plimsoll_bursts_forget. A single mark behind all unfinished work meters it. */
void plimsoll_bursts_resume(uint64_t context, int gpu);

#endif
