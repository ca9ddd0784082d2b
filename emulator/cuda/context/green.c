/* Green contexts: parts of a GPU's multiprocessors with streams of their own. A green context lies within
 * the primary context, which owns all memory allocated in it. Each green context costs GREEN_BYTES, of the
 * order seen on real cards. */
#include "cuda/context/lifetime.h"
#include "cuda/context/primary.h"
#include "cuda/context/resource.h"
#include "cuda/stream/lookup.h"
#include "cuda/stream/queue.h"

#define GREEN_BYTES ((size_t)8 << 20)

struct CUgreenCtx_st {
    struct object object;
    CUcontext context;
    CUdevice device;
    unsigned sm_count;
};

static CUresult activate(CUgreenCtx green) {
    CUcontext primary;
    CUresult result = context_retain(&primary, green->device);
    if (result)
        return result;
    CUcontext context = context_make(green->device);
    if (context) {
        context->own_bytes = GREEN_BYTES;
        context->owner = primary;
        context->primary = true; /* the program must not destroy it */
        context->green = green;
        if (context_activate(context)) {
            green->context = context;
            return CUDA_SUCCESS;
        }
        context_deactivate(context);
        context_discard(context);
    }
    context_let_go(primary);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult create(CUgreenCtx *result, CUdevResourceDesc resources, CUdevice device, unsigned flags) {
    if (!driver_has_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!result || flags != CU_GREEN_CTX_DEFAULT_STREAM || !object_is(resources, OBJECT_RESOURCES) ||
        resources->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    CUgreenCtx green = object_new(OBJECT_GREEN, sizeof *green);
    if (!green)
        return CUDA_ERROR_OUT_OF_MEMORY;
    green->device = device;
    green->sm_count = resources->sm_count;
    CUresult outcome = activate(green);
    if (outcome)
        object_free(green);
    else
        *result = green;
    return outcome;
}

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device,
                          unsigned int flags) {
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(create(green, resources, device, flags));
}

/* Enters and checks the handle. */
static CUresult enter(CUgreenCtx green) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    return object_is(green, OBJECT_GREEN) ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_CONTEXT);
}

CUresult cuGreenCtxDestroy(CUgreenCtx green) {
    CUresult entered = enter(green);
    if (entered)
        return entered;
    CUcontext context = green->context, primary = context->owner;
    object_free(green);
    queue_finish_context(context);
    context_deactivate(context);
    context_discard(context);
    context_let_go(primary);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
    CUresult entered = enter(green);
    if (entered)
        return entered;
    if (!context)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *context = green->context;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *resource, CUdevResourceType type) {
    CUresult entered = enter(green);
    if (entered)
        return entered;
    if (!resource)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return driver_leave(CUDA_ERROR_INVALID_RESOURCE_TYPE);
    *resource = resource_of(green->device, green->sm_count);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags, int priority) {
    CUresult entered = enter(green);
    if (entered)
        return entered;
    if (!stream || flags != CU_STREAM_NON_BLOCKING)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *stream = stream_make(green->context, flags, priority);
    return driver_leave(*stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}
