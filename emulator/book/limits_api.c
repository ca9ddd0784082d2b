#include "book/limits_api.h"

#include "book/book.h"
#include "book/limits.h"
#include "book/lock.h"

static struct book_limit *take_row(struct book *book, int gpu, uint64_t group) {
    struct book_limit *row = book_find_limit_locked(book, gpu, 0);
    if (!row && book->state->limits_touched < BOOK_MAX_LIMITS)
        row = &book->state->limits[book->state->limits_touched++];
    if (row)
        *row = (struct book_limit){.group = group, .gpu = (uint32_t)gpu, .hard_bytes = BOOK_NO_LIMIT};
    return row;
}

static void set(struct book *book, struct book_limit *limit, uint64_t soft_bytes, uint64_t hard_bytes) {
    limit->soft_bytes = soft_bytes;
    if (hard_bytes >= book_group_used_locked(book, (int)limit->gpu, limit->group))
        limit->hard_bytes = hard_bytes;
    if (soft_bytes == 0 && hard_bytes == BOOK_NO_LIMIT)
        limit->group = 0;
}

bool book_set_limits(struct book *book, int gpu, uint64_t group, uint64_t soft_bytes, uint64_t hard_bytes) {
    book_lock(book);
    book_sweep_locked(book);
    struct book_limit *limit = book_find_limit_locked(book, gpu, group);
    if (!limit)
        limit = take_row(book, gpu, group);
    if (limit)
        set(book, limit, soft_bytes, hard_bytes);
    book_unlock(book);
    return limit;
}

void book_get_limits(struct book *book, int gpu, uint64_t group, uint64_t *soft_bytes, uint64_t *hard_bytes,
                     uint64_t *used_bytes) {
    book_lock(book);
    book_sweep_locked(book);
    const struct book_limit *limit = book_find_limit_locked(book, gpu, group);
    *soft_bytes = limit ? limit->soft_bytes : 0;
    *hard_bytes = limit ? limit->hard_bytes : BOOK_NO_LIMIT;
    *used_bytes = book_group_used_locked(book, gpu, group);
    book_unlock(book);
}

void book_own_limit(struct book *book, int gpu, uint64_t *hard_bytes, uint64_t *free_bytes) {
    book_lock(book);
    book_sweep_locked(book);
    *free_bytes = book_allowed_locked(book, gpu, hard_bytes);
    book_unlock(book);
}
