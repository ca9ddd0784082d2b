/* Contexts. One costs device memory of its own, whether primary or created, and dies with all it holds. */
#include "cuda/context/context.h"

#include "cuda/memory/array.h"
#include "cuda/stream/capture.h"
#include "cuda/stream/event.h"
#include "cuda/graph/memory.h"
#include "cuda/memory/memory.h"
#include "cuda/module/module.h"
#include "cuda/memory/pool.h"
#include "cuda/stream/stream.h"
#include "cuda/stream/work.h"

enum { STACK = 64, API_VERSION = 3020 };

static _Thread_local struct {
    CUcontext contexts[STACK];
    int depth;
} stack;

static unsigned long long last_id; /* lock */
static CUcontext first;            /* lock */

CUcontext context_first(void) {
    return first;
}

CUcontext context_current(void) {
    return stack.depth ? stack.contexts[stack.depth - 1] : NULL;
}

bool context_activate(CUcontext context) {
    if (!book_charge(&driver.book, context->gpu, context->own_bytes))
        return false;
    book_count_context(&driver.book, context->gpu, 1);
    book_note(&driver.book, context->gpu, BOOK_CONTEXTS, (int64_t)context->own_bytes);
    context->charged = true;
    context->id = ++last_id; /* a primary context that was reset is another one */
    context_default_limits(context);
    context->legacy = stream_new(context, 0, 0);
    return context->legacy != NULL;
}

static bool is_in_use(CUdevice device) {
    for (CUcontext context = first; context; context = context->next)
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

CUcontext context_make(CUdevice device, unsigned flags) {
    CUcontext context = object_new(OBJECT_CONTEXT, sizeof *context);
    if (!context)
        return NULL;
    context->device = device;
    context->gpu = driver.gpus[device];
    context->own_bytes = driver.book.node.gpus[context->gpu].context_bytes;
    context->owner = context;
    context->flags = flags;
    context->id = ++last_id;
    context->next = first;
    first = context;
    return context;
}

void context_discard(CUcontext context) {
    CUcontext *link = &first;
    while (*link != context)
        link = &(*link)->next;
    *link = context->next;
    object_free(context);
}

static CUresult create(CUcontext *result, unsigned flags, CUdevice device) {
    if (!result || (flags & ~(unsigned)CU_CTX_FLAGS_MASK))
        return CUDA_ERROR_INVALID_VALUE;
    if (!driver_has_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (stack.depth == STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUcontext context = context_make(device, flags);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!context_activate(context)) {
        context_deactivate(context);
        context_discard(context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *result = stack.contexts[stack.depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(create(context, flags, device));
}

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device) {
    return cuCtxCreate_v2(context, flags, device);
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
    work_finish_context(context);
    context_deactivate(context);
    context_discard(context);
    if (context_current() == context)
        stack.depth--;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxDestroy(CUcontext context) {
    return cuCtxDestroy_v2(context);
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(context, OBJECT_CONTEXT) || stack.depth == STACK)
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    stack.contexts[stack.depth++] = context;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent(CUcontext context) {
    return cuCtxPushCurrent_v2(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!stack.depth)
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    stack.depth--;
    if (context)
        *context = stack.contexts[stack.depth];
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent(CUcontext *context) {
    return cuCtxPopCurrent_v2(context);
}

CUresult cuCtxSetCurrent(CUcontext context) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (context && !object_is(context, OBJECT_CONTEXT))
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (!context && stack.depth)
        stack.depth--;
    else if (context && !stack.depth)
        stack.contexts[stack.depth++] = context;
    else if (context)
        stack.contexts[stack.depth - 1] = context;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!context)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *context = context_current();
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *device) {
    CUcontext context;
    CUresult entered = driver_enter_context(&context);
    if (entered)
        return entered;
    if (!device)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *device = context->device;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!version)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (context ? !object_is(context, OBJECT_CONTEXT) : !context_current())
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    *version = API_VERSION;
    return driver_leave(CUDA_SUCCESS);
}
