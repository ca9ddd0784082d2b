/* Settings that a context keeps for its program. */
#include "cuda/context/state.h"

enum { PRINTF_BYTES = 1 << 20, HEAP_BYTES = 8 << 20 }; /* included in the context's own memory */

void context_default_limits(CUcontext context) {
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = PRINTF_BYTES;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = HEAP_BYTES;
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

static size_t cost_of(CUlimit limit, size_t value) {
    size_t included = limit == CU_LIMIT_MALLOC_HEAP_SIZE   ? HEAP_BYTES
                      : limit == CU_LIMIT_PRINTF_FIFO_SIZE ? PRINTF_BYTES
                                                           : SIZE_MAX;
    return value > included ? value - included : 0;
}

size_t context_limit_bytes(const struct CUctx_st *context) {
    return cost_of(CU_LIMIT_MALLOC_HEAP_SIZE, context->limits[CU_LIMIT_MALLOC_HEAP_SIZE]) +
           cost_of(CU_LIMIT_PRINTF_FIFO_SIZE, context->limits[CU_LIMIT_PRINTF_FIFO_SIZE]);
}

/* Enters and finds the context meant: NULL = the current one. */
static CUresult enter(CUcontext handle, CUcontext *context) {
    if (!handle)
        return context_enter(context);
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    *context = handle;
    return object_is(handle, OBJECT_CONTEXT) ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_CONTEXT);
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long *id) {
    CUcontext context;
    CUresult entered = enter(handle, &context);
    if (entered)
        return entered;
    if (!id)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *id = context->id;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
    CUcontext context;
    CUresult entered = enter(NULL, &context);
    if (entered)
        return entered;
    if (!value)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (limit >= CU_LIMIT_MAX)
        return driver_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = context->limits[limit];
    return driver_leave(CUDA_SUCCESS);
}

/* The heap and the buffer of printf are device memory of the context. */
static CUresult set_limit(CUcontext context, CUlimit limit, size_t value) {
    size_t before = cost_of(limit, context->limits[limit]), after = cost_of(limit, value);
    if (after > before && !book_charge(&driver.book, context->gpu, after - before))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (after < before)
        book_refund(&driver.book, context->gpu, before - after);
    book_note(&driver.book, context->gpu, BOOK_CONTEXTS, (int64_t)(after - before));
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    CUcontext context;
    CUresult entered = enter(NULL, &context);
    if (entered)
        return entered;
    if (limit >= CU_LIMIT_MAX)
        return driver_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    return driver_leave(set_limit(context, limit, value));
}

/* Nothing is profiled. */
CUresult cuProfilerStart(void) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    return entered ? entered : driver_leave(CUDA_SUCCESS);
}

CUresult cuProfilerStop(void) {
    return cuProfilerStart();
}
