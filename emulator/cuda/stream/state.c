/* Properties of streams. */
#include "cuda/context/context.h"
#include "cuda/stream/stream.h"
#include "cuda/stream/submit.h"

/* Defines a function that returns one field of a stream. */
#define GETTER(name, type, field)                                                                            \
    CUresult name(CUstream handle, type *value) {                                                            \
        CUstream stream;                                                                                     \
        CUresult entered = submit_enter(handle, &stream);                                                    \
        if (entered)                                                                                         \
            return entered;                                                                                  \
        if (!value)                                                                                          \
            return driver_leave(CUDA_ERROR_INVALID_VALUE);                                                   \
        *value = stream->field;                                                                              \
        return driver_leave(CUDA_SUCCESS);                                                                   \
    }

GETTER(cuStreamGetPriority, int, priority)
GETTER(cuStreamGetFlags, unsigned int, flags)
GETTER(cuStreamGetId, unsigned long long, id)
GETTER(cuStreamGetCtx, CUcontext, context)
GETTER(cuStreamGetGreenCtx, CUgreenCtx, context->green)
GETTER(cuStreamGetDevice, CUdevice, context->device)

CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green) {
    CUresult result = cuStreamGetCtx(stream, context);
    if (green)
        *green = result == CUDA_SUCCESS ? (*context)->green : NULL;
    if (green && *green)
        *context = NULL;
    return result;
}
