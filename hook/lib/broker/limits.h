/* Reads `limits` while the broker may be rewriting it. */
#ifndef PLIMSOLL_LIMITS_H
#define PLIMSOLL_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

#include "pages.h"

/* Copies a consistent state of the mapping. False while the file is being rewritten, or if it is torn or not
 * ours: wrong magic, version or size, too many GPUs, an identity that is no UUID. */
bool plimsoll_limits_copy(const struct plimsoll_limits *mapping, struct plimsoll_limits *copy);

/* The 16 bytes of "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" (or "MIG-"); false if `text` is no such name. */
bool plimsoll_uuid_bytes(const char *text, unsigned char bytes[16]);

/* Stores the first copy of `limits`: the identities of the GPUs, which never change, and their numbers. */
void plimsoll_limits_store(const struct plimsoll_limits *copy);

/* Stores the numbers of a changed `limits`. Costs one load and one comparison if the file has not changed. */
void plimsoll_refresh(void);

#endif
