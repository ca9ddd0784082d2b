/* Faults of the management library that a test asks for: calls that fail, and calls that take long. */
#ifndef PLIMSOLL_EMULATOR_BOOK_CALL_FAULTS_H
#define PLIMSOLL_EMULATOR_BOOK_CALL_FAULTS_H

#include "book/state.h"

/* From now on the GPU's calls whose names begin with `call` take `delay_ms` and, unless `error` is 0, return
 * it. Each GPU has one fault at most: another fault replaces it, and an empty `call` ends it. False for a
 * longer name than there is room for. */
bool book_set_call_fault(struct book *book, int gpu, const char *call, uint32_t error, uint32_t delay_ms);

/* Takes the time that the fault asks for; returns the error for this call, or 0. */
uint32_t book_suffer_call_fault(const struct book *book, int gpu, const char *function);

#endif
