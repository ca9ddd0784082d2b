#include "memory/current.h"

#include "driver/driver.h"
#include "memory/unseen.h"

int plimsoll_gpu_of_current_context(uint64_t context) {
    CUdevice device;
    int gpu = context ? plimsoll_gpu_of_known_context(context) : GPU_NONE;
    if (gpu != GPU_UNLISTED)
        return gpu;
    if (CALLED(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
        return GPU_NONE;
    gpu = plimsoll_gpu_of_device(device);
    if (gpu >= 0)
        plimsoll_context_seen(context);
    return gpu;
}

int plimsoll_gpu_of_current(void) {
    return plimsoll_gpu_of_current_context(plimsoll_current_context());
}

static int gpu_of_context(CUcontext context) {
    CUcontext popped;
    int gpu = plimsoll_gpu_of_known_context((uintptr_t)context);
    if (gpu != GPU_UNLISTED || CALLED(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS)
        return gpu;
    gpu = plimsoll_gpu_of_current();
    CALLED(cuCtxPopCurrent_v2)(&popped);
    return gpu;
}

/* Only a stream made by the program is queried. A query about a default stream during a capture would break
 * that capture, and the default streams belong to the current context anyway. */
int plimsoll_gpu_of_stream(CUstream stream, uint64_t *context) {
    bool is_default = stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    CUcontext owner;
    *context = plimsoll_current_context();
    if (is_default || !HAS(cuStreamGetCtx) || *context == 0 ||
        CALLED(cuStreamGetCtx)(stream, &owner) != CUDA_SUCCESS || plimsoll_owner_of(owner) == *context)
        return plimsoll_gpu_of_current_context(*context);
    *context = plimsoll_owner_of(owner);
    return gpu_of_context(owner);
}
