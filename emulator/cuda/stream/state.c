/* Properties and settings of streams. */
#include "cuda/context/context.h"
#include "cuda/stream/lookup.h"
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

static CUresult get(CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *value) {
    if (attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
        value->accessPolicyWindow = stream->window;
    else if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
        value->syncPolicy = stream->sync_policy;
    else if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        value->priority = stream->priority;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value) {
    CUstream stream;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    return driver_leave(value ? get(stream, attribute, value) : CUDA_ERROR_INVALID_VALUE);
}

static CUresult set(CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue *value) {
    if (attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
        stream->window = value->accessPolicyWindow;
    else if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
        stream->sync_policy = value->syncPolicy;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue *value) {
    CUstream stream;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    return driver_leave(value ? set(stream, attribute, value) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuStreamCopyAttributes(CUstream target, CUstream source) {
    CUstream from, to;
    CUresult entered = submit_enter(source, &from);
    if (entered)
        return entered;
    to = stream_of(from->context, target);
    if (!to)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    to->window = from->window;
    to->sync_policy = from->sync_policy;
    return driver_leave(CUDA_SUCCESS);
}
