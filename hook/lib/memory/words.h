/* This process's words in `counts`: taking bytes off them, and counting what was refused. */
#ifndef PLIMSOLL_WORDS_H
#define PLIMSOLL_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/gpus.h"

/* Takes `bytes` off this process's word for a GPU; nothing where `gpu` is negative. */
void plimsoll_uncharge(int gpu, uint64_t bytes);

/* The same, and tells the broker where somebody waits for that memory. Call it without any lock but
 * context_lock. */
void plimsoll_uncharge_and_tell(int gpu, uint64_t bytes);

/* Counts and tells a refusal. */
void plimsoll_count_denial(int gpu, uint64_t bytes, const char *function);

/* Judges a request on a GPU that is not in `limits`: true where the container owns its GPUs alone. Else
 * counts the refusal. */
bool plimsoll_admit_unlisted(uint64_t bytes, const char *function);

#endif
