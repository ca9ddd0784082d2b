/* All contexts, and the calling thread's stack of them. */
#include "cuda/context/context.h"

#include "book/view.h"

enum { STACK = 64 };

static _Thread_local struct {
    CUcontext contexts[STACK];
    int depth;
} stack;

static unsigned long long last_id; /* lock */
static CUcontext first;            /* lock */

CUcontext context_first(void) {
    return first;
}

void context_renew_id(CUcontext context) {
    context->id = ++last_id;
}

CUcontext context_current(void) {
    return stack.depth ? stack.contexts[stack.depth - 1] : NULL;
}

bool context_has_room(void) {
    return stack.depth < STACK;
}

void context_push(CUcontext context) {
    stack.contexts[stack.depth++] = context;
}

void context_pop(void) {
    stack.depth--;
}

CUresult context_find(CUcontext *context) {
    *context = context_current();
    if (!*context)
        return CUDA_ERROR_INVALID_CONTEXT;
    bool alive = object_is(*context, OBJECT_CONTEXT) && (*context)->charged;
    if (!alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    bool lost = book_is_lost(&driver.book, (*context)->gpu);
    return lost ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult context_enter(CUcontext *context) {
    CUresult result = driver_enter();
    if (result != CUDA_SUCCESS)
        return result;
    CUresult found = context_find(context);
    return found ? driver_leave(found) : CUDA_SUCCESS;
}

CUcontext context_make(CUdevice device) {
    CUcontext context = object_new(OBJECT_CONTEXT, sizeof *context);
    if (!context)
        return NULL;
    context->device = device;
    context->gpu = driver.gpus[device];
    context->own_bytes = driver.book.node.gpus[context->gpu].context_bytes;
    context->owner = context;
    context_renew_id(context);
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

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(context, OBJECT_CONTEXT) || !context_has_room())
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    context_push(context);
    return driver_leave(CUDA_SUCCESS);
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
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (!device)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *device = context->device;
    return driver_leave(CUDA_SUCCESS);
}
