/* The wrapper for an answer of the driver's look-up. */
#ifndef PLIMSOLL_ROUTING_H
#define PLIMSOLL_ROUTING_H

#include "driver/driver.h"

/* The wrapper for `found`, which the driver answered for `name`, `version` and `flags` of cuGetProcAddress;
 * NULL where no hook replaces it. */
plimsoll_function plimsoll_wrapper_for(const char *name, plimsoll_function found, int version,
                                       cuuint64_t flags);

/* Whether `found`, which has no wrapper, is a function that neither hooks.h nor passes.txt classifies. */
bool plimsoll_is_unknown_function(const char *name, plimsoll_function found);

/* Whether the function that programs get as cuMemAlloc from this driver is held to the line. If not, standard
 * error reports it. */
bool plimsoll_is_memory_routed(void);

#endif
