#include "book/holders.h"

#include <string.h>

enum { WORD_BITS = 64, NOBODY = BOOK_MAX_SLOTS };

static bool holds(const struct book_shared *shared, int slot) {
    return shared->holders[slot / WORD_BITS] >> slot % WORD_BITS & 1;
}

static int payer_of(const struct book_shared *shared) {
    if (!shared->id || shared->owner != NOBODY)
        return -1; /* the row is free, or the owner's slot pays */
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

void book_drop_holder_locked(struct book_shared *shared, int slot) {
    shared->holders[slot / WORD_BITS] &= ~(1ull << slot % WORD_BITS);
    if ((int)shared->owner == slot)
        shared->owner = NOBODY; /* the slot's next process does not own this memory */
    for (int word = 0; word < BOOK_MAX_SLOTS / WORD_BITS; word++)
        if (shared->holders[word])
            return;
    shared->id = 0;
}

void book_forget_holder_locked(struct book *book, int slot) {
    for (uint32_t i = 0; i < book->state->shared_touched; i++)
        if (book->state->shared[i].id)
            book_drop_holder_locked(&book->state->shared[i], slot);
}

struct book_shared *book_find_shared_locked(struct book *book, uint64_t id) {
    for (uint32_t i = 0; i < book->state->shared_touched; i++)
        if (book->state->shared[i].id == id)
            return &book->state->shared[i];
    return NULL;
}

void book_add_holder_locked(struct book_shared *shared, int slot) {
    shared->holders[slot / WORD_BITS] |= 1ull << slot % WORD_BITS;
}

bool book_enter_shared_locked(struct book *book, int gpu, uint64_t bytes, uint64_t id) {
    struct book_shared *shared = book_find_shared_locked(book, 0);
    if (!shared && book->state->shared_touched == BOOK_MAX_SHARED)
        return false;
    if (!shared)
        shared = &book->state->shared[book->state->shared_touched];
    memset(shared, 0, sizeof *shared);
    shared->bytes = bytes;
    shared->gpu = (uint32_t)gpu;
    shared->owner = (uint32_t)book->slot;
    book_add_holder_locked(shared, book->slot);
    shared->id = id;
    if (shared == &book->state->shared[book->state->shared_touched])
        book->state->shared_touched++;
    return true;
}
