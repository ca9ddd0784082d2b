/* Primary contexts: one per device, shared by all who retain it. */
#ifndef PLIMSOLL_EMULATOR_CONTEXT_PRIMARY_H
#define PLIMSOLL_EMULATOR_CONTEXT_PRIMARY_H

#include "cuda/context/context.h"

/* Retains a device's primary context, as cuDevicePrimaryCtxRetain does. */
CUresult context_retain(CUcontext *context, CUdevice device);
/* Ends one retain; the last one deactivates, after all work is done. */
void context_let_go(CUcontext primary);

#endif
