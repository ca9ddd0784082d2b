/* Which functions of the driver somebody has looked at. */
#ifndef PLIMSOLL_KNOWN_H
#define PLIMSOLL_KNOWN_H

#include <stdbool.h>

/* Whether this is a name as the driver's functions have and neither hooks.h nor passes.txt holds it. */
bool plimsoll_is_unclassified(const char *name);

#endif
