/* This process's words in `counts`: takes bytes off them, and counts refusals. */
#ifndef PLIMSOLL_WORDS_H
#define PLIMSOLL_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/gpus.h"

/* Takes `bytes` off this process's word for a GPU. Does nothing if `gpu` is negative. */
void plimsoll_uncharge(int gpu, uint64_t bytes);

/* The same, and reports the bytes to the broker if another process waits for memory there. Call this without
 * any lock but context_lock. */
void plimsoll_uncharge_and_tell(int gpu, uint64_t bytes);

/* Counts and reports a refusal. */
void plimsoll_count_denial(int gpu, uint64_t bytes, const char *function);

/* Decides on a request for a GPU that is not in `limits`: true if the container owns its GPUs alone.
 * Otherwise counts the refusal. */
bool plimsoll_admit_unlisted(uint64_t bytes, const char *function);

#endif
