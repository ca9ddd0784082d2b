/* The pieces of memory that this process imports from its container, or from itself. */
#ifndef PLIMSOLL_IMPORTS_H
#define PLIMSOLL_IMPORTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "pages.h"

/* This process's imports of each piece; guarded by `lock`. */
struct plimsoll_own_imports {
    pthread_mutex_t lock;
    uint32_t counts[PLIMSOLL_MAX_EXPORTS];
    uint32_t marks_used;
    bool is_kept[PLIMSOLL_MAX_EXPORTS]; /* this process let go of its own piece, and imports it still */
};

#endif
