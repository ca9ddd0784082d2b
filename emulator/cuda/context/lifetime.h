/* Contexts come and go. */
#ifndef PLIMSOLL_EMULATOR_CONTEXT_LIFETIME_H
#define PLIMSOLL_EMULATOR_CONTEXT_LIFETIME_H

#include "cuda/context/context.h"

/* Charges what it costs; false where there is no room. A failed one is deactivated too. */
bool context_activate(CUcontext context);
/* Frees all that lives in a context, after its work is done or dropped. Leaves a primary context inactive. */
void context_deactivate(CUcontext context);

#endif
