/* Sets and shows the limits of control groups; limits.h says what they do. */
#ifndef PLIMSOLL_EMULATOR_BOOK_LIMITS_API_H
#define PLIMSOLL_EMULATOR_BOOK_LIMITS_API_H

#include "book/state.h"

/* Sets a group's limits; a soft limit of 0 and a hard one of BOOK_NO_LIMIT remove them. A hard limit below
 * the group's use has no effect, as in the kernel, which reports nothing about it. False if no row is free.
 */
bool book_set_limits(struct book *book, int gpu, uint64_t group, uint64_t soft_bytes, uint64_t hard_bytes);
/* A group's limits, 0 and BOOK_NO_LIMIT where none are set, and its use. */
void book_get_limits(struct book *book, int gpu, uint64_t group, uint64_t *soft_bytes, uint64_t *hard_bytes,
                     uint64_t *used_bytes);
/* The lowest limit above this process, and the bytes that all of them still allow it. */
void book_own_limit(struct book *book, int gpu, uint64_t *hard_bytes, uint64_t *free_bytes);

#endif
