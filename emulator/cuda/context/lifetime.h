/* Creation and destruction of contexts. */
#ifndef PLIMSOLL_EMULATOR_CONTEXT_LIFETIME_H
#define PLIMSOLL_EMULATOR_CONTEXT_LIFETIME_H

#include "cuda/context/context.h"

/* Charges the context's own memory; false if the card has no room. The caller deactivates a context also
 * when its activation failed. */
bool context_activate(CUcontext context);
/* Frees all that a context holds, after its work is done or dropped. A primary context stays, inactive. */
void context_deactivate(CUcontext context);

#endif
