/* The book's lock, for the files that make up the book. */
#ifndef PLIMSOLL_EMULATOR_BOOK_LOCK_H
#define PLIMSOLL_EMULATOR_BOOK_LOCK_H

#include "book/book.h"

void book_lock(struct book *book);
void book_unlock(struct book *book);
/* The caller holds the lock for these. */
void book_sweep_locked(struct book *book);
uint64_t book_used_locked(const struct book *book, int gpu);
bool book_charge_locked(struct book *book, int gpu, uint64_t bytes);
void book_refund_locked(struct book *book, int gpu, uint64_t bytes);
/* Shared memory that a slot pays for because its owner is gone; slot -1 = of all slots. */
uint64_t book_inherited_locked(const struct book *book, int gpu, int slot);
void book_forget_holder_locked(struct book *book, int slot);

#endif
