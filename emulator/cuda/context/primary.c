/* Primary contexts: one per device, shared by all callers that retain it. */
#include "cuda/context/primary.h"

#include "cuda/context/lifetime.h"
#include "cuda/stream/queue.h"

CUresult context_retain(CUcontext *result, CUdevice device) {
    if (!result)
        return CUDA_ERROR_INVALID_VALUE;
    if (!driver_has_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext context = driver.primaries[device];
    if (!context)
        context = driver.primaries[device] = context_make(device);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->primary = true;
    if (!context->uses && !context_activate(context)) {
        context_deactivate(context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->uses++;
    *result = context;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(context_retain(context, device));
}

void context_let_go(CUcontext context) {
    if (context->uses > 1)
        context->uses--;
    else if (context->uses) {
        queue_finish_context(context);
        context_deactivate(context);
    }
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!driver_has_device(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    CUcontext context = driver.primaries[device];
    if (!context || !context->uses)
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    context_let_go(context);
    return driver_leave(CUDA_SUCCESS);
}

/* Frees everything at once. A caller that still holds a retain finds the context inactive, as with
 * NVIDIA's driver. */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!driver_has_device(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    CUcontext context = driver.primaries[device];
    if (context && context->uses) {
        queue_finish_context(context);
        context_deactivate(context);
    }
    return driver_leave(CUDA_SUCCESS);
}

/* NVIDIA's runtime reaches its primary context by calls that no preloaded library can wrap. These
 * functions stand for such calls in tests: they equal the public functions under names that no library
 * wraps. */
#define PRIVATE __attribute__((visibility("default")))
PRIVATE CUresult plimsoll_emulator_private_retain(CUcontext *context, CUdevice device);
PRIVATE CUresult plimsoll_emulator_private_reset(CUdevice device);

CUresult plimsoll_emulator_private_retain(CUcontext *context, CUdevice device) {
    return cuDevicePrimaryCtxRetain(context, device);
}

CUresult plimsoll_emulator_private_reset(CUdevice device) {
    return cuDevicePrimaryCtxReset_v2(device);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!driver_has_device(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    driver.primary_flags[device] = flags;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!driver_has_device(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    if (!flags || !active)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = driver.primary_flags[device];
    *active = driver.primaries[device] && driver.primaries[device]->uses;
    return driver_leave(CUDA_SUCCESS);
}
