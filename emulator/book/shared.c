/* Memory that several processes hold. Its first holder has paid for it in its own slot; when that lets go or
 * dies while others hold it, the holder in the lowest slot pays, so the card's sum loses nothing. A holder is
 * a bit that goes with its slot, so no death leaves memory behind. */
#include <string.h>

#include "book/book.h"
#include "book/lock.h"

enum { WORD_BITS = 64, NOBODY = BOOK_MAX_SLOTS };

static bool holds(const struct book_shared *shared, int slot) {
    return shared->holders[slot / WORD_BITS] >> slot % WORD_BITS & 1;
}

static int payer_of(const struct book_shared *shared) {
    if (!shared->id || shared->owner != NOBODY)
        return -1; /* free, or paid for in the owner's slot */
    for (int slot = 0; slot < BOOK_MAX_SLOTS; slot++)
        if (holds(shared, slot))
            return slot;
    return -1;
}

uint64_t book_inherited_locked(const struct book *book, int gpu, int slot) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < book->state->shared_touched; i++) {
        const struct book_shared *shared = &book->state->shared[i];
        int payer = (int)shared->gpu == gpu ? payer_of(shared) : -1;
        if (payer >= 0 && (slot < 0 || payer == slot))
            bytes += shared->bytes;
    }
    return bytes;
}

static void forget(struct book_shared *shared, int slot) {
    shared->holders[slot / WORD_BITS] &= ~(1ull << slot % WORD_BITS);
    if ((int)shared->owner == slot)
        shared->owner = NOBODY; /* the slot's next process owns nothing */
    for (int word = 0; word < BOOK_MAX_SLOTS / WORD_BITS; word++)
        if (shared->holders[word])
            return;
    shared->id = 0;
}

void book_forget_holder_locked(struct book *book, int slot) {
    for (uint32_t i = 0; i < book->state->shared_touched; i++)
        if (book->state->shared[i].id)
            forget(&book->state->shared[i], slot);
}

static struct book_shared *find(struct book *book, uint64_t id) {
    for (uint32_t i = 0; i < book->state->shared_touched; i++)
        if (book->state->shared[i].id == id)
            return &book->state->shared[i];
    return NULL;
}

static bool enter(struct book *book, int gpu, uint64_t bytes, uint64_t id) {
    struct book_shared *shared = find(book, 0);
    if (!shared && book->state->shared_touched == BOOK_MAX_SHARED)
        return false;
    if (!shared)
        shared = &book->state->shared[book->state->shared_touched];
    memset(shared, 0, sizeof *shared);
    shared->bytes = bytes;
    shared->gpu = (uint32_t)gpu;
    shared->owner = (uint32_t)book->slot;
    shared->holders[book->slot / WORD_BITS] = 1ull << book->slot % WORD_BITS;
    shared->id = id;
    if (shared == &book->state->shared[book->state->shared_touched])
        book->state->shared_touched++;
    return true;
}

uint64_t book_share(struct book *book, int gpu, uint64_t bytes) {
    book_lock(book);
    book_sweep_locked(book);
    uint64_t id = ++book->state->last_shared_id;
    bool entered = enter(book, gpu, bytes, id);
    book_unlock(book);
    return entered ? id : 0;
}

bool book_hold(struct book *book, uint64_t id, int gpu, uint64_t bytes, bool *pays) {
    book_lock(book);
    struct book_shared *shared = find(book, id);
    *pays = !shared;
    if (shared)
        shared->holders[book->slot / WORD_BITS] |= 1ull << book->slot % WORD_BITS;
    /* All that held it are gone, but its descriptor was still under way: it comes back, if there is room. */
    bool good = shared || book_charge_locked(book, gpu, bytes);
    if (!shared && good)
        enter(book, gpu, bytes, id); /* without a row it is ours alone, and paid for */
    book_unlock(book);
    return good;
}

void book_let_go(struct book *book, uint64_t id, int gpu, uint64_t paid_bytes) {
    book_lock(book);
    struct book_shared *shared = find(book, id);
    if (shared)
        forget(shared, book->slot);
    book_refund_locked(book, gpu, paid_bytes);
    book_unlock(book);
}
