#include "book/limits.h"

#include <string.h>

#include "book/book.h"
#include "book/cgroup.h"
#include "book/holders.h"
#include "book/lock.h"

static bool is_in(const struct book_slot *slot, uint64_t group) {
    for (int depth = 0; depth < BOOK_CGROUP_DEPTH; depth++)
        if (slot->cgroups[depth] == group)
            return true;
    return false;
}

static uint64_t used_locked(const struct book *book, int gpu, uint64_t group) {
    uint64_t used_bytes = 0;
    for (int i = 0; i < (int)book->state->slots_touched; i++) {
        const struct book_slot *slot = &book->state->slots[i];
        if (slot->pid && is_in(slot, group))
            used_bytes += slot->gpus[gpu].used_bytes + book_inherited_locked(book, gpu, i);
    }
    return used_bytes;
}

static struct book_limit *find_locked(struct book *book, int gpu, uint64_t group) {
    for (uint32_t i = 0; i < book->state->limits_touched; i++) {
        struct book_limit *limit = &book->state->limits[i];
        if (limit->group == group && (!group || (int)limit->gpu == gpu))
            return limit;
    }
    return NULL;
}

static struct book_limit *free_row_locked(struct book *book) {
    struct book_limit *row = find_locked(book, 0, 0);
    if (!row && book->state->limits_touched < BOOK_MAX_LIMITS)
        row = &book->state->limits[book->state->limits_touched++];
    return row;
}

bool book_set_limits(struct book *book, int gpu, uint64_t group, uint64_t soft_bytes, uint64_t hard_bytes) {
    book_lock(book);
    book_sweep_locked(book);
    struct book_limit *limit = find_locked(book, gpu, group);
    bool is_removal = soft_bytes == 0 && hard_bytes == BOOK_NO_LIMIT;
    if (!limit && !is_removal) {
        limit = free_row_locked(book);
        if (limit)
            *limit = (struct book_limit){.group = group, .gpu = (uint32_t)gpu, .hard_bytes = BOOK_NO_LIMIT};
    }
    bool is_done = limit || is_removal;
    if (limit) {
        limit->soft_bytes = soft_bytes;
        if (hard_bytes >= used_locked(book, gpu, group))
            limit->hard_bytes = hard_bytes;
        if (is_removal)
            limit->group = 0;
    }
    book_unlock(book);
    return is_done;
}

void book_get_limits(struct book *book, int gpu, uint64_t group, uint64_t *soft_bytes, uint64_t *hard_bytes,
                     uint64_t *used_bytes) {
    book_lock(book);
    book_sweep_locked(book);
    const struct book_limit *limit = find_locked(book, gpu, group);
    *soft_bytes = limit ? limit->soft_bytes : 0;
    *hard_bytes = limit ? limit->hard_bytes : BOOK_NO_LIMIT;
    *used_bytes = used_locked(book, gpu, group);
    book_unlock(book);
}

/* Reads this process's groups anew, because a process may be moved. Costs nothing on a node without limits.
 */
static struct book_slot *own_slot_locked(struct book *book) {
    if (!book->state->limits_touched || book->slot < 0)
        return NULL;
    struct book_slot *slot = &book->state->slots[book->slot];
    cgroup_own(slot->cgroups);
    return slot;
}

static void look_up_locked(struct book *book, int gpu, uint64_t *hard_bytes, uint64_t *free_bytes) {
    *hard_bytes = *free_bytes = BOOK_NO_LIMIT;
    const struct book_slot *slot = own_slot_locked(book);
    for (uint32_t i = 0; slot && i < book->state->limits_touched; i++) {
        const struct book_limit *limit = &book->state->limits[i];
        if (!limit->group || (int)limit->gpu != gpu || !is_in(slot, limit->group))
            continue;
        uint64_t used_bytes = used_locked(book, gpu, limit->group);
        uint64_t left_bytes = limit->hard_bytes > used_bytes ? limit->hard_bytes - used_bytes : 0;
        *free_bytes = left_bytes < *free_bytes ? left_bytes : *free_bytes;
        *hard_bytes = limit->hard_bytes < *hard_bytes ? limit->hard_bytes : *hard_bytes;
    }
}

uint64_t book_allowed_locked(struct book *book, int gpu) {
    uint64_t hard_bytes, free_bytes;
    look_up_locked(book, gpu, &hard_bytes, &free_bytes);
    return free_bytes;
}

void book_own_limit(struct book *book, int gpu, uint64_t *hard_bytes, uint64_t *free_bytes) {
    book_lock(book);
    book_sweep_locked(book);
    look_up_locked(book, gpu, hard_bytes, free_bytes);
    book_unlock(book);
}
