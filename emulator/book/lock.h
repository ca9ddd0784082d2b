/* The book's lock. */
#ifndef PLIMSOLL_EMULATOR_BOOK_LOCK_H
#define PLIMSOLL_EMULATOR_BOOK_LOCK_H

#include <errno.h>

#include "book/state.h"

static inline void book_lock(struct book *book) {
    /* Slots need no repair after a holder's death: no field depends on another. */
    if (pthread_mutex_lock(&book->state->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&book->state->lock);
}

static inline void book_unlock(struct book *book) {
    pthread_mutex_unlock(&book->state->lock);
}

#endif
