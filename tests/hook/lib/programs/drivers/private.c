/* A driver whose contexts also come and go by ways that no hook sees, beside those that the emulator has,
 * which it is linked to under another name: created ones, and primary ones whose successor has another
 * handle.
 */
#define _GNU_SOURCE
#include <cuda.h>

#include "emulated.h"

#define DEVICES 2

static CUcontext replaced[DEVICES]; /* what stands for a device's primary context; NULL for its own */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = replaced[device];
    return replaced[device] ? CUDA_SUCCESS : EMULATED(cuDevicePrimaryCtxRetain, context, device);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return replaced[device] ? CUDA_SUCCESS : EMULATED(cuDevicePrimaryCtxRelease_v2, device);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *is_active) {
    CUresult result = EMULATED(cuDevicePrimaryCtxGetState, device, flags, is_active);
    *is_active = *is_active || replaced[device];
    return result;
}

/* The functions defined here are the driver's own, and hooked; the emulator's of the same name are not. */
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    return EMULATED(cuCtxCreate_v2, context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    return EMULATED(cuCtxDestroy_v2, context);
}

/* A reset leaves the primary context in place, if without anything in it: so it may still tell its device. */
CUresult cuCtxGetDevice(CUdevice *device) {
    CUresult result = EMULATED(cuCtxGetDevice, device);
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        *device = DEVICES - 1;
    return result == CUDA_ERROR_CONTEXT_IS_DESTROYED ? CUDA_SUCCESS : result;
}

CUresult privateCreate(CUcontext *context, CUdevice device);
CUresult privateCreate(CUcontext *context, CUdevice device) {
    return EMULATED(cuCtxCreate_v2, context, 0, device);
}

CUresult privateReplace(CUcontext *context, CUdevice device);
CUresult privateReplace(CUcontext *context, CUdevice device) {
    int count = 0;
    if (cuDeviceGetCount(&count) != CUDA_SUCCESS || count > DEVICES || device >= count)
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext before = replaced[device];
    CUresult result =
        before ? EMULATED(cuCtxDestroy_v2, before) : EMULATED(cuDevicePrimaryCtxReset_v2, device);
    if (result == CUDA_SUCCESS)
        result = privateCreate(&replaced[device], device);
    *context = replaced[device];
    return result;
}
