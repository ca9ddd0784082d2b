/* What a context remembers on behalf of its program: flags, limits, cache preferences. */
#include "context.h"

/* Enters and finds the context meant: NULL = the current one. */
static CUresult enter(CUcontext handle, CUcontext *context) {
    if (!handle)
        return driver_enter_context(context);
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    *context = handle;
    return object_is(handle, OBJECT_CONTEXT) ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_CONTEXT);
}

CUresult cuCtxGetFlags(unsigned int *flags) {
    CUcontext context;
    CUresult entered = enter(NULL, &context);
    if (entered)
        return entered;
    if (!flags)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = context->flags;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetFlags(unsigned int flags) {
    CUcontext context;
    CUresult entered = enter(NULL, &context);
    if (entered)
        return entered;
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    context->flags = flags;
    return driver_leave(CUDA_SUCCESS);
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

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    CUcontext context;
    CUresult entered = enter(NULL, &context);
    if (entered)
        return entered;
    if (limit >= CU_LIMIT_MAX)
        return driver_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    context->limits[limit] = value;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config) {
    CUcontext context;
    CUresult entered = enter(NULL, &context);
    if (entered)
        return entered;
    if (!config)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *config = context->cache_config;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    CUcontext context;
    CUresult entered = enter(NULL, &context);
    if (entered)
        return entered;
    if (config > CU_FUNC_CACHE_PREFER_EQUAL)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    context->cache_config = config;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config) {
    CUcontext context;
    CUresult entered = enter(NULL, &context);
    if (entered)
        return entered;
    if (!config)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *config = context->shared_config;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
    CUcontext context;
    CUresult entered = enter(NULL, &context);
    if (entered)
        return entered;
    if (config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    context->shared_config = config;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxResetPersistingL2Cache(void) {
    CUcontext context;
    CUresult entered = enter(NULL, &context);
    return entered ? entered : driver_leave(CUDA_SUCCESS);
}

CUresult cuProfilerStart(void) {
    return cuCtxResetPersistingL2Cache(); /* both only need a context */
}

CUresult cuProfilerStop(void) {
    return cuCtxResetPersistingL2Cache();
}
