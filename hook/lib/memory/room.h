/* Whether a request fits, by the present limits. */
#ifndef PLIMSOLL_ROOM_H
#define PLIMSOLL_ROOM_H

#include <stdint.h>

#include "memory/ledger.h"

enum plimsoll_fit {
    FIT_RESERVED,
    FIT_PAST_LINE,  /* fits only once memory is given back or the line rises */
    FIT_PAST_GRANT, /* within the line, but past what the broker granted so far: the caller may wait */
};

/* Adds `bytes` to this process's word for a GPU of `limits`, if all words and the excess together then stay
 * within line and grant. `extra_bytes` of them may stand past both. Never waits. Unless the result is
 * FIT_RESERVED, nothing was added. Reads changed limits on the way. */
enum plimsoll_fit plimsoll_fit(unsigned gpu, uint64_t bytes, uint64_t extra_bytes);

/* The bytes that the container uses of a GPU: the words of all living processes, the memory of exporters that
 * are gone, and the excess that NVML shows past them. Saturates. Reads /proc if another process has a word.
 */
uint64_t plimsoll_used(unsigned gpu);

/* Lists the container's living processes on a GPU, with bytes that sum up to plimsoll_used. Only the broker
 * knows whose the excess is, and `limits` has its sum. So the processes with a context, which is most of the
 * excess, get equal parts of it. */
unsigned plimsoll_list(unsigned gpu, struct plimsoll_listed listed[PLIMSOLL_MAX_SLOTS]);

#endif
