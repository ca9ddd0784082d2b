/* The functions of the driver that nobody has classified yet. */
#ifndef PLIMSOLL_UNCLASSIFIED_H
#define PLIMSOLL_UNCLASSIFIED_H

#include <stdbool.h>

/* Whether this looks like a name of the driver's functions, and neither hooks.h nor passes.txt contains
 * it. */
bool plimsoll_is_unclassified(const char *name);

#endif
