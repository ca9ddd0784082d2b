/* Memory that several processes hold. */
#ifndef PLIMSOLL_EMULATOR_BOOK_SHARED_H
#define PLIMSOLL_EMULATOR_BOOK_SHARED_H

#include "book/state.h"

/* Offers memory, for which this process has paid, to other processes. Returns the memory's id; 0 if no row
 * is free. */
uint64_t book_offer(struct book *book, int gpu, uint64_t bytes);
/* Holds shared memory. If all its holders are gone, the memory is charged to this process and `pays` is
 * set; false if the card has no room for it. A second hold of one process is the same hold. */
bool book_hold(struct book *book, uint64_t id, int gpu, uint64_t bytes, bool *pays);
/* Ends this process's hold and refunds its payment. Another holder pays from then on. */
void book_let_go(struct book *book, uint64_t id, int gpu, uint64_t paid_bytes);

#endif
