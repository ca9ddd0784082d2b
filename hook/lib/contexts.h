/* Contexts: what each costs, and what ends with it. */
#ifndef PLIMSOLL_CONTEXTS_H
#define PLIMSOLL_CONTEXTS_H

#include <stdint.h>

/* After new limits: contexts that live are charged at what they are now known to cost, past the line if need
 * be, since they are there. The first process of a container makes its context before anyone could measure
 * it. */
void plimsoll_recharge_contexts(void);

/* The primary context on a GPU of `limits` while this process holds it, or 0. */
uint64_t plimsoll_primary_of_gpu(int gpu);

#endif
