/* Memory that several processes hold. */
#ifndef PLIMSOLL_EMULATOR_BOOK_SHARED_H
#define PLIMSOLL_EMULATOR_BOOK_SHARED_H

#include "book/state.h"

/* Enters memory, for which this process has paid, among what others may hold. 0 = no row is free. */
uint64_t book_offer(struct book *book, int gpu, uint64_t bytes);
/* Holds what has been shared. Where all its holders are gone it is charged to this process, and `pays` is
 * set; false where the card has no room for that. Once per process: a second hold is the same one. */
bool book_hold(struct book *book, uint64_t id, int gpu, uint64_t bytes, bool *pays);
/* Ends this process's hold, and refunds what it paid; whoever else holds it pays from here on. */
void book_let_go(struct book *book, uint64_t id, int gpu, uint64_t paid_bytes);

#endif
