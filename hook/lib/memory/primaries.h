/* What contexts cost; and primary contexts: one per GPU, shared by all who retain it, and counted by the
 * driver. */
#ifndef PLIMSOLL_PRIMARIES_H
#define PLIMSOLL_PRIMARIES_H

#include "state.h"

/* What a new context on a GPU costs, as far as that was measured; 0 for a GPU that is not in `limits`. */
uint64_t plimsoll_context_bytes(int gpu);

/* After the driver made, or ended, a context of either kind. */
void plimsoll_context_made(int gpu);

void plimsoll_context_ended(int gpu);

/* Around a retain. A retain makes the context or finds it made; only the driver knows, and only afterwards.
 * So each enters, the first one charged. False if the line forbids. */
bool plimsoll_primary_enter(int gpu, const char *function);

/* After the driver ended it: what it held, and its own charge, go back. */
void plimsoll_primary_end(int gpu);

/* A driver may use one handle again for the context that comes after a reset. The number is another one then;
 * drivers before CUDA 12.0 tell none, and 0 stands for it. */
struct plimsoll_primary {
    uint64_t context; /* 0: none */
    uint64_t id;
};

#define PLIMSOLL_NO_PRIMARY ((struct plimsoll_primary){0, 0})

static inline bool plimsoll_is_same(struct plimsoll_primary a, struct plimsoll_primary b) {
    return a.context == b.context && a.id == b.id;
}

/* Of a GPU of `limits`, as it was last noted. */
struct plimsoll_primary plimsoll_primary_known(int gpu);

/* Whether this was the GPU's primary context until it ended: a thread may still have it current. */
bool plimsoll_is_former_primary(int gpu, uint64_t context);

/* Enters for a context that is there already, so nothing is judged. */
void plimsoll_primary_enter_unjudged(int gpu);

/* Takes a primary context off the books where it still stands there, each of its holdings by `gone`. */
bool plimsoll_primary_drop(int gpu, struct plimsoll_primary known,
                           void (*gone)(const struct plimsoll_holding *));

/* Makes `to` the known primary context of a GPU where `from` still is; false where another thread was faster.
 */
bool plimsoll_primary_change(int gpu, struct plimsoll_primary from, struct plimsoll_primary to);

/* One that entered leaves again; the last one's charge goes back. */
void plimsoll_primary_leave(int gpu);

#endif
