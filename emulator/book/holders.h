/* Rows of the book for memory that several processes hold. The process that shared the memory has paid for
 * it in its own slot. When that process lets go or dies while others hold the memory, the holder in the
 * lowest slot pays, so the card's sum loses nothing. Each holder is one bit that is cleared with its slot,
 * so no death leaves memory charged. The caller holds the book's lock. */
#ifndef PLIMSOLL_EMULATOR_BOOK_HOLDERS_H
#define PLIMSOLL_EMULATOR_BOOK_HOLDERS_H

#include "book/state.h"

/* Bytes of shared memory that a slot pays for because the owner is gone. Slot -1 means all slots. */
uint64_t book_inherited_locked(const struct book *book, int gpu, int slot);
void book_forget_holder_locked(struct book *book, int slot);

/* The row with this id; NULL if none. Id 0 finds a free row. */
struct book_shared *book_find_shared_locked(struct book *book, uint64_t id);
/* Takes a row for memory that this process has paid for. False if no row is free. */
bool book_enter_shared_locked(struct book *book, int gpu, uint64_t bytes, uint64_t id);
void book_add_holder_locked(struct book_shared *shared, int slot);
/* Clears one holder; the last one frees the row. */
void book_drop_holder_locked(struct book_shared *shared, int slot);

#endif
