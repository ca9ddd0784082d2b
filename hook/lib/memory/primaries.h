/* The cost of contexts, and primary contexts: one per GPU, shared by all that retain it, with references that
 * the driver counts. */
#ifndef PLIMSOLL_PRIMARIES_H
#define PLIMSOLL_PRIMARIES_H

#include "state.h"

/* The measured memory of a new context on a GPU, in bytes; 0 before it was measured, and for a GPU that is
 * not in `limits`. */
uint64_t plimsoll_context_bytes(int gpu);

/* After the driver made, or ended, a primary or a created context. A context for which nothing was charged is
 * measured first. */
void plimsoll_context_made(int gpu, uint64_t charged_bytes);

void plimsoll_context_ended(int gpu);

/* Before a retain. A retain makes the context or finds one; only the driver knows which, and only afterwards.
 * So every retaining thread enters, and the first one is charged. False if the line forbids the charge. */
bool plimsoll_primary_enter(int gpu, const char *function);

/* After the driver ended the primary context: gives back what the context held, and its own charge. */
void plimsoll_primary_end(int gpu);

/* A driver may use the same handle for the next context after a reset. The number differs then. Drivers
 * before CUDA 12.0 give no number; `id` is 0 there. */
struct plimsoll_primary {
    uint64_t context; /* 0: none */
    uint64_t id;
};

#define PLIMSOLL_NO_PRIMARY ((struct plimsoll_primary){0, 0})

static inline bool plimsoll_is_same(struct plimsoll_primary a, struct plimsoll_primary b) {
    return a.context == b.context && a.id == b.id;
}

/* The primary context of a GPU of `limits`, as last recorded. */
struct plimsoll_primary plimsoll_primary_known(int gpu);

/* Whether this was the GPU's primary context until it ended. A thread may still have it current. */
bool plimsoll_is_former_primary(int gpu, uint64_t context);

/* The bytes that are charged for the primary context; 0 for a GPU that is not in `limits`. */
uint64_t plimsoll_primary_charge(int gpu);

/* Enters for a context that exists already. The line is not checked. */
void plimsoll_primary_enter_unjudged(int gpu);

/* Takes a primary context off the books if it is still on them, and passes each of its holdings to `gone`. */
bool plimsoll_primary_drop(int gpu, struct plimsoll_primary known,
                           void (*gone)(const struct plimsoll_holding *));

/* Makes `to` the known primary context of a GPU if the known one is still `from`. False if another thread was
 * faster. */
bool plimsoll_primary_change(int gpu, struct plimsoll_primary from, struct plimsoll_primary to);

/* After the program's retain succeeded. */
void plimsoll_primary_retained(int gpu);

/* Before a release by the program. True: the program retained the context once more, so it outlives the
 * release. False: nobody knows, because NVIDIA's runtime can retain a context through a private table. */
bool plimsoll_primary_outlives_release(int gpu);

/* Undoes one entry. When the last entry is undone, the charge goes back. */
void plimsoll_primary_leave(int gpu);

#endif
