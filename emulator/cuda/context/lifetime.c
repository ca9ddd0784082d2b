/* Creation and destruction of contexts. Each context, primary or created, costs device memory of its own.
 * All that the context holds is freed with it. */
#include "cuda/context/lifetime.h"

#include "cuda/context/state.h"
#include "cuda/graph/memory.h"
#include "cuda/memory/array/mapping.h"
#include "cuda/memory/memory.h"
#include "cuda/module/module.h"
#include "cuda/stream/awaited.h"
#include "cuda/stream/capture/record.h"
#include "cuda/stream/event/event.h"
#include "cuda/stream/lifetime.h"
#include "cuda/stream/queue.h"
#include "cuda/stream/stream.h"

bool context_activate(CUcontext context) {
    if (!book_charge(&driver.book, context->gpu, context->own_bytes))
        return false;
    book_count_context(&driver.book, context->gpu, 1);
    book_note(&driver.book, context->gpu, BOOK_CONTEXTS, (int64_t)context->own_bytes);
    context->charged = true;
    context_renew_id(context); /* a primary context after a reset counts as another context */
    context_default_limits(context);
    context->legacy = stream_new(context, 0, 0);
    return context->legacy != NULL;
}

static bool is_in_use(CUdevice device) {
    for (CUcontext context = context_first(); context; context = context->next)
        if (context->device == device && context->charged)
            return true;
    return false;
}

void context_deactivate(CUcontext context) {
    capture_forget_context(context);
    stream_free_all(context);
    event_await_no_more(context);
    event_free_all(context);
    module_free_all(context);
    array_unmap_all(context);
    memory_free_all(context);
    if (context->charged) {
        size_t bytes = context->own_bytes + context_limit_bytes(context);
        book_refund(&driver.book, context->gpu, bytes);
        book_count_context(&driver.book, context->gpu, -1);
        book_note(&driver.book, context->gpu, BOOK_CONTEXTS, -(int64_t)bytes);
    }
    context->charged = false;
    context->uses = 0;
    if (!is_in_use(context->device))
        graph_memory_leave(context->device);
}

static CUresult create(CUcontext *result, unsigned flags, CUdevice device) {
    if (!result || (flags & ~(unsigned)CU_CTX_FLAGS_MASK))
        return CUDA_ERROR_INVALID_VALUE;
    if (!driver_has_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!context_has_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUcontext context = context_make(device);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!context_activate(context)) {
        context_deactivate(context);
        context_discard(context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context_push(context);
    *result = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(create(context, flags, device));
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags,
                        CUdevice device) {
    (void)params;
    return count ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device) {
    if (params && params->numExecAffinityParams)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(context, OBJECT_CONTEXT) || context->primary)
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    queue_finish_context(context);
    context_deactivate(context);
    context_discard(context);
    if (context_current() == context)
        context_pop();
    return driver_leave(CUDA_SUCCESS);
}
