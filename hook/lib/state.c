#include "state.h"

struct plimsoll_state plimsoll = {.resolve_lock = PTHREAD_MUTEX_INITIALIZER,
                                  .attach_lock = PTHREAD_MUTEX_INITIALIZER,
                                  .retry_lock = PTHREAD_MUTEX_INITIALIZER,
                                  .context_lock = PTHREAD_MUTEX_INITIALIZER};

_Thread_local unsigned plimsoll_depth;
