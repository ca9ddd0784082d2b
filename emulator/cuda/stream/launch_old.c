/* The launch API from before CUDA 4, which every driver still has: the function keeps the shape of its
 * blocks and its parameters, and a launch names only the grid. Texture references are not emulated. */
#include <stdlib.h>
#include <string.h>

#include "cuda/context/context.h"
#include "cuda/module/module.h"

enum { PARAMETER_BYTES = 4096 };

struct old_launch {
    unsigned block[3];
    unsigned shared_bytes;
    size_t parameter_bytes;
    unsigned char parameters[PARAMETER_BYTES];
};

/* Enters and finds the settings that a function keeps. */
static CUresult enter(CUfunction handle, struct old_launch **old) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    CUfunction function = module_function(context, handle);
    if (!function)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (!function->old)
        function->old = calloc(1, sizeof *function->old);
    *old = function->old;
    return *old ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
    struct old_launch *old;
    if (x <= 0 || y <= 0 || z <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult entered = enter(function, &old);
    if (entered)
        return entered;
    old->block[0] = (unsigned)x;
    old->block[1] = (unsigned)y;
    old->block[2] = (unsigned)z;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuFuncSetSharedSize(CUfunction function, unsigned int bytes) {
    struct old_launch *old;
    CUresult entered = enter(function, &old);
    if (entered)
        return entered;
    old->shared_bytes = bytes;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuParamSetSize(CUfunction function, unsigned int bytes) {
    struct old_launch *old;
    if (bytes > PARAMETER_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult entered = enter(function, &old);
    if (entered)
        return entered;
    old->parameter_bytes = bytes;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuParamSetv(CUfunction function, int offset, void *value, unsigned int bytes) {
    struct old_launch *old;
    if (!value || offset < 0 || bytes > PARAMETER_BYTES || (unsigned)offset > PARAMETER_BYTES - bytes)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult entered = enter(function, &old);
    if (entered)
        return entered;
    memcpy(old->parameters + offset, value, bytes);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuParamSeti(CUfunction function, int offset, unsigned int value) {
    return cuParamSetv(function, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction function, int offset, float value) {
    return cuParamSetv(function, offset, &value, sizeof value);
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    struct old_launch *shared, old;
    if (width <= 0 || height <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult entered = enter(function, &shared);
    if (entered)
        return entered;
    old = *shared;
    driver_leave(CUDA_SUCCESS);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, old.parameters, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &old.parameter_bytes, CU_LAUNCH_PARAM_END};
    return cuLaunchKernel(function, (unsigned)width, (unsigned)height, 1, old.block[0], old.block[1],
                          old.block[2], old.shared_bytes, stream, NULL, extra);
}

CUresult cuLaunchGrid(CUfunction function, int width, int height) {
    return cuLaunchGridAsync(function, width, height, NULL);
}

CUresult cuLaunch(CUfunction function) {
    return cuLaunchGrid(function, 1, 1);
}
