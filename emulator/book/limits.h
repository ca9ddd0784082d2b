/* Limits of control groups on a GPU's memory, as the kernel's controller `dmem` keeps them: a group's use is
 * that of all processes in it and below it, contexts and all, and each limit on the way up holds. Two things
 * differ: a process that moves to another group takes its memory along, and memory that crosses processes
 * counts in its payer's group. The caller holds the book's lock. */
#ifndef PLIMSOLL_EMULATOR_BOOK_LIMITS_H
#define PLIMSOLL_EMULATOR_BOOK_LIMITS_H

#include "book/state.h"

#define BOOK_NO_LIMIT UINT64_MAX

/* The row of a group on a GPU; NULL if none. Group 0 finds a free row of any GPU. */
struct book_limit *book_find_limit_locked(struct book *book, int gpu, uint64_t group);
/* Bytes that the processes in a group and below it hold. */
uint64_t book_group_used_locked(const struct book *book, int gpu, uint64_t group);
/* The bytes that this process's groups still allow it, and the lowest of their limits; BOOK_NO_LIMIT where
 * none is set. */
uint64_t book_allowed_locked(struct book *book, int gpu, uint64_t *hard_bytes);

#endif
