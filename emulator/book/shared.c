#include "book/shared.h"

#include "book/book.h"
#include "book/holders.h"
#include "book/lock.h"

uint64_t book_offer(struct book *book, int gpu, uint64_t bytes) {
    book_lock(book);
    book_sweep_locked(book);
    uint64_t id = ++book->state->last_shared_id;
    bool entered = book_enter_shared_locked(book, gpu, bytes, id);
    book_unlock(book);
    return entered ? id : 0;
}

bool book_hold(struct book *book, uint64_t id, int gpu, uint64_t bytes, bool *pays) {
    book_lock(book);
    struct book_shared *shared = book_find_shared_locked(book, id);
    *pays = !shared;
    if (shared)
        book_add_holder_locked(shared, book->slot);
    /* All holders are gone, but a descriptor of the memory was still in transit. The memory is charged
     * anew if the card has room. */
    bool good = shared || book_charge_locked(book, gpu, bytes);
    if (!shared && good)
        book_enter_shared_locked(
            book, gpu, bytes,
            id); /* without a row the memory belongs to this process alone, which has paid */
    book_unlock(book);
    return good;
}

void book_let_go(struct book *book, uint64_t id, int gpu, uint64_t paid_bytes) {
    book_lock(book);
    struct book_shared *shared = book_find_shared_locked(book, id);
    if (shared)
        book_drop_holder_locked(shared, book->slot);
    book_refund_locked(book, gpu, paid_bytes);
    book_unlock(book);
}
