/* Which wrapper stands for what the driver's look-up answers. */
#ifndef PLIMSOLL_ROUTING_H
#define PLIMSOLL_ROUTING_H

#include "driver/driver.h"

/* The wrapper for `found`, which the driver answered for `name`, `version` and `flags` of cuGetProcAddress;
 * NULL where no hook stands for that. */
plimsoll_function plimsoll_wrapper_for(const char *name, plimsoll_function found, int version,
                                       cuuint64_t flags);

/* Whether `found`, for which there is no wrapper, is something that nobody has looked at. */
bool plimsoll_is_unheard_of(const char *name, plimsoll_function found);

/* Whether what programs get as cuMemAlloc from this driver is held to the line; if not, standard error says
 * so. */
bool plimsoll_is_memory_routed(void);

#endif
