#include "book/limits.h"

#include "book/cgroup.h"
#include "book/holders.h"

static bool is_in(const struct book_slot *slot, uint64_t group) {
    for (int depth = 0; depth < BOOK_CGROUP_DEPTH; depth++)
        if (slot->cgroups[depth] == group)
            return true;
    return false;
}

uint64_t book_group_used_locked(const struct book *book, int gpu, uint64_t group) {
    uint64_t used_bytes = 0;
    for (int i = 0; i < (int)book->state->slots_touched; i++) {
        const struct book_slot *slot = &book->state->slots[i];
        if (slot->pid && is_in(slot, group))
            used_bytes += slot->gpus[gpu].used_bytes + book_inherited_locked(book, gpu, i);
    }
    return used_bytes;
}

struct book_limit *book_find_limit_locked(struct book *book, int gpu, uint64_t group) {
    for (uint32_t i = 0; i < book->state->limits_touched; i++) {
        struct book_limit *limit = &book->state->limits[i];
        if (limit->group == group && (!group || (int)limit->gpu == gpu))
            return limit;
    }
    return NULL;
}

/* Reads this process's groups anew, because a process may be moved. Costs nothing on a node without
 * limits. */
static struct book_slot *own_slot(struct book *book) {
    if (!book->state->limits_touched || book->slot < 0)
        return NULL;
    struct book_slot *slot = &book->state->slots[book->slot];
    cgroup_own(slot->cgroups);
    return slot;
}

uint64_t book_allowed_locked(struct book *book, int gpu, uint64_t *hard_bytes) {
    uint64_t allowed_bytes = *hard_bytes = BOOK_NO_LIMIT;
    const struct book_slot *slot = own_slot(book);
    for (uint32_t i = 0; slot && i < book->state->limits_touched; i++) {
        const struct book_limit *limit = &book->state->limits[i];
        if (!limit->group || (int)limit->gpu != gpu || !is_in(slot, limit->group))
            continue;
        uint64_t used_bytes = book_group_used_locked(book, gpu, limit->group);
        uint64_t left_bytes = limit->hard_bytes > used_bytes ? limit->hard_bytes - used_bytes : 0;
        allowed_bytes = left_bytes < allowed_bytes ? left_bytes : allowed_bytes;
        *hard_bytes = limit->hard_bytes < *hard_bytes ? limit->hard_bytes : *hard_bytes;
    }
    return allowed_bytes;
}
