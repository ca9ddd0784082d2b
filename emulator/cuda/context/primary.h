/* Primary contexts: one per device, shared by all callers that retain it. */
#ifndef PLIMSOLL_EMULATOR_CONTEXT_PRIMARY_H
#define PLIMSOLL_EMULATOR_CONTEXT_PRIMARY_H

#include "cuda/context/context.h"

/* Retains a device's primary context, as cuDevicePrimaryCtxRetain does. */
CUresult context_retain(CUcontext *context, CUdevice device);
/* Ends one retain. The last one deactivates the context, after all its work is done. */
void context_let_go(CUcontext primary);

#endif
