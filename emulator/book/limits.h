/* Limits of control groups on a GPU's memory, as the kernel's controller `dmem` keeps them: a group's use is
 * that of all processes in it and below it, contexts and all, and each limit on the way up holds. Two things
 * differ: a process that moves to another group takes its memory along, and memory that crosses processes
 * counts in its payer's group. */
#ifndef PLIMSOLL_EMULATOR_BOOK_LIMITS_H
#define PLIMSOLL_EMULATOR_BOOK_LIMITS_H

#include "book/state.h"

#define BOOK_NO_LIMIT UINT64_MAX

/* Sets a group's limits; a soft limit of 0 and a hard one of BOOK_NO_LIMIT remove them. A hard limit below
 * the group's use has no effect, as in the kernel, which reports nothing about it. False if no row is free.
 */
bool book_set_limits(struct book *book, int gpu, uint64_t group, uint64_t soft_bytes, uint64_t hard_bytes);
/* A group's limits, 0 and BOOK_NO_LIMIT where none are set, and its use. */
void book_get_limits(struct book *book, int gpu, uint64_t group, uint64_t *soft_bytes, uint64_t *hard_bytes,
                     uint64_t *used_bytes);
/* The lowest limit above this process and what is left below all of them; BOOK_NO_LIMIT where none is set. */
void book_own_limit(struct book *book, int gpu, uint64_t *hard_bytes, uint64_t *free_bytes);

/* The bytes that this process's groups still allow it. The caller holds the book's lock. */
uint64_t book_allowed_locked(struct book *book, int gpu);

#endif
