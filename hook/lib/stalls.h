/* Work that waits, on the device, for a launch that stands at the gate.
 *
 * A collective's kernel on one GPU goes on when its counterpart on another GPU has begun. The gate shuts for
 * all GPUs of a container at once, but between two launches of a program, or where two processes have come
 * unequally far. Then what was launched on one GPU waits for what was not on another, nothing drains, and all
 * who share these GPUs wait as well.
 *
 * So who drains says since when its work is overdue, for all processes of the container to see, and a launch
 * may go through the shut gate in a context that has nothing unfinished, one at a time, while work elsewhere
 * in the container is overdue: whoever is behind catches up with who is ahead, and not the other way round.
 * That it was overdue must have been seen after the context's own latest work had ended: it may have been
 * what was waited for.
 */
#ifndef PLIMSOLL_STALLS_H
#define PLIMSOLL_STALLS_H

#include "state.h"

/* For the keeper, behind a shut gate: notes whose work is overdue that is not known to be done by a look that
 * began at `looked_ns`; 0 takes back what was noted. */
void plimsoll_stalls_note(uint64_t looked_ns);

/* Whether a launch in this context may go through a shut gate. */
bool plimsoll_may_follow(uint64_t context);

/* Whether anything of the container is unfinished that may wait for a launch; false with a single GPU. */
bool plimsoll_is_container_busy(void);

#endif
