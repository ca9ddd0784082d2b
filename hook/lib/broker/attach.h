/* How a process comes under its container's limits. */
#ifndef PLIMSOLL_ATTACH_H
#define PLIMSOLL_ATTACH_H

#include "state.h"

/* Maps the container's files and claims a slot. Waits up to 10 s for the first valid limits and a slot.
 * Returns ATTACHMENT_FULL or ATTACHMENT_NONE. Any other value means that the process gets no GPU, and one
 * line on standard error gives the reason. */
enum plimsoll_attachment plimsoll_attach(void);

/* Maps the files if they exist now, without waiting and without a slot: that is enough for the views. Returns
 * ATTACHMENT_UNKNOWN where the container's limits do not exist yet. */
enum plimsoll_attachment plimsoll_map_files(void);

/* The directory with the container's limits; NULL where this process is not under Plimsoll. */
const char *plimsoll_find_limits(void);

#endif
