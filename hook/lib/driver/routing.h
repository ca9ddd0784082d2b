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

/* Whether `function`, of a file named like the driver's, belongs to the resolved driver all the same: the
 * driver's look-up answers from that file, or that file's look-up answers as the driver's does. */
bool plimsoll_leads_to_driver(const void *function);

/* Whether the function that programs get as cuMemAlloc from this driver is held to the line. If not, standard
 * error reports it. */
bool plimsoll_is_memory_routed(void);

/* Whether this looks like a name of the driver's functions, and neither hooks.h nor passes.txt contains
 * it. */
bool plimsoll_is_unclassified(const char *name);

#endif
