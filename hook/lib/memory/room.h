/* Whether something fits, by the limits as they are now. */
#ifndef PLIMSOLL_ROOM_H
#define PLIMSOLL_ROOM_H

#include <stdint.h>

enum plimsoll_fit {
    FIT_RESERVED,
    FIT_PAST_LINE,  /* never, unless something is given back or the line rises */
    FIT_PAST_GRANT, /* within the line, but past what the broker granted so far: may be waited for */
};

/* Adds `bytes` to this process's word for a GPU of `limits` if all words and the excess together then stay
 * within line and grant, past which `extra_bytes` of them may stand. Never waits; unless FIT_RESERVED,
 * nothing was added. Takes over changed limits on the way. */
enum plimsoll_fit plimsoll_fit(unsigned gpu, uint64_t bytes, uint64_t extra_bytes);

/* What the container uses of a GPU: everybody's words, and what NVML shows past them. Saturates. */
uint64_t plimsoll_used(unsigned gpu);

#endif
