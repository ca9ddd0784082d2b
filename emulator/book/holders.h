/* Rows of the book for memory that several processes hold, and who pays for it. Its first holder has paid
 * in its own slot; when that lets go or dies while others hold it, the holder in the lowest slot pays, so the
 * card's sum loses nothing. A holder is a bit that goes with its slot, so no death leaves memory behind. The
 * caller holds the book's lock. */
#ifndef PLIMSOLL_EMULATOR_BOOK_HOLDERS_H
#define PLIMSOLL_EMULATOR_BOOK_HOLDERS_H

#include "book/state.h"

/* Shared memory that a slot pays for because its owner is gone; slot -1 = of all slots. */
uint64_t book_inherited_locked(const struct book *book, int gpu, int slot);
void book_forget_holder_locked(struct book *book, int slot);

/* The row of this number; NULL = none. Number 0 finds a free row. */
struct book_shared *book_find_shared_locked(struct book *book, uint64_t id);
/* A row for memory that this process has paid for; false = no row is free. */
bool book_enter_shared_locked(struct book *book, int gpu, uint64_t bytes, uint64_t id);
void book_add_holder_locked(struct book_shared *shared, int slot);
/* With the last holder the row is free. */
void book_drop_holder_locked(struct book_shared *shared, int slot);

#endif
