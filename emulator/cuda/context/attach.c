/* Counted uses of contexts, the API before cuCtxPushCurrent. */
#include "cuda/context/context.h"

CUresult cuCtxAttach(CUcontext *result, unsigned int flags) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (!result || flags)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    context->attached++;
    *result = context;
    return driver_leave(CUDA_SUCCESS);
}

/* The last detach destroys the context. Only the current context can be detached, and never a primary one. */
CUresult cuCtxDetach(CUcontext handle) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (handle != context || context->primary)
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    bool is_last = !context->attached;
    if (!is_last)
        context->attached--;
    driver_leave(CUDA_SUCCESS);
    return is_last ? cuCtxDestroy_v2(handle) : CUDA_SUCCESS;
}
