/* What primaries.c and unseen.c have between them: a primary context as the driver tells it apart. */
#ifndef PLIMSOLL_UNSEEN_H
#define PLIMSOLL_UNSEEN_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_api.h"
#include "memory/holdings.h"

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

/* The driver's number for a context; 0 where it tells none. */
uint64_t plimsoll_context_id(CUcontext context);

/* Of a GPU of `limits`, as it was last noted. */
struct plimsoll_primary plimsoll_primary_known(int gpu);

/* Whether this was the GPU's primary context until it ended: a thread may still have it current. */
bool plimsoll_is_former_primary(int gpu, uint64_t context);

/* Enters for a context that is there already, so nothing is judged. */
void plimsoll_primary_enter_unjudged(int gpu);

/* Takes a primary context off the books where it still stands there, each of its holdings by `gone`. */
bool plimsoll_primary_drop(int gpu, struct plimsoll_primary known,
                           void (*gone)(const struct plimsoll_holding *));

#endif
