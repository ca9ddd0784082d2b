#include "state.h"

/* The word of a process without a gate: it never changes. */
static const uint32_t always_open = PLIMSOLL_GATE_OPEN;

struct plimsoll_state plimsoll = {
    .gate_word = &always_open,
    .resolve_lock = PTHREAD_MUTEX_INITIALIZER,
    .attach_lock = PTHREAD_MUTEX_INITIALIZER,
    .retry_lock = PTHREAD_MUTEX_INITIALIZER,
    .context_lock = PTHREAD_MUTEX_INITIALIZER,
    .shares = {.lock = PTHREAD_MUTEX_INITIALIZER, .waits.slower = 1, .samples.passes_left = 1}};

_Thread_local unsigned plimsoll_depth;
