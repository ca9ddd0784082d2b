/* Contexts: what each costs, and what ends with it. */
#ifndef PLIMSOLL_CONTEXTS_H
#define PLIMSOLL_CONTEXTS_H

#include <stdint.h>

/* The primary context on a GPU of `limits` while this process holds it, or 0. */
uint64_t plimsoll_primary_of_gpu(int gpu);

#endif
