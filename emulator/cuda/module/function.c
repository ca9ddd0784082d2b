/* A function's attributes, and occupancy derived from them. */
#include "cuda/module/module.h"

#include "cuda/context/context.h"

enum { THREADS_PER_SM = 1536, BLOCKS_PER_SM = 16, SHARED_PER_SM = 100 << 10, REGISTERED_SHARED = 1 << 10 };

/* Enters and finds the function; a library's kernel is accepted too. */
static CUresult enter(CUfunction handle, CUfunction *function) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    *function = module_function(context, handle);
    return *function ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle) {
    CUfunction function;
    CUresult entered = enter(handle, &function);
    if (entered)
        return entered;
    if (!value || attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *value = function->attributes[attribute];
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    CUfunction function;
    CUresult entered = enter(handle, &function);
    if (entered)
        return entered;
    if (attribute < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || attribute >= CU_FUNC_ATTRIBUTE_MAX ||
        (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
         (value < 0 || value > SHARED_PER_SM)))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    function->attributes[attribute] = value;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
    return driver_has_device(device) ? cuFuncGetAttribute(value, attribute, (CUfunction)(void *)kernel)
                                     : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
    return driver_has_device(device) ? cuFuncSetAttribute((CUfunction)(void *)kernel, attribute, value)
                                     : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
    CUfunction function;
    CUresult entered = enter(handle, &function);
    if (entered)
        return entered;
    return driver_leave(config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
    CUfunction function;
    CUresult entered = enter(handle, &function);
    if (entered)
        return entered;
    return driver_leave(config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_SUCCESS
                                                                            : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction handle) {
    CUfunction function;
    CUresult entered = enter(handle, &function);
    if (entered)
        return entered;
    if (!module)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *module = function->module;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuFuncGetName(const char **name, CUfunction handle) {
    CUfunction function;
    CUresult entered = enter(handle, &function);
    if (entered)
        return entered;
    if (!name)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *name = function->name;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle) {
    CUfunction function;
    CUresult entered = enter(handle, &function);
    if (entered)
        return entered;
    if (!state)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *state =
        function->module->is_loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuFuncLoad(CUfunction handle) {
    CUfunction function;
    CUresult entered = enter(handle, &function);
    if (entered)
        return entered;
    return driver_leave(module_require(function->module) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

/* Only the parameters of `busy` and `spin` are known. */
CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size) {
    CUfunction function;
    CUresult entered = enter(handle, &function);
    if (entered)
        return entered;
    size_t unread;
    bool known = offset && module_parameter(function, index, offset, size ? size : &unread);
    return driver_leave(known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size) {
    return cuFuncGetParamInfo((CUfunction)(void *)kernel, index, offset, size);
}

static int blocks_per_sm(int block_size, size_t shared_bytes) {
    int blocks = THREADS_PER_SM / block_size;
    int by_shared = (int)(SHARED_PER_SM / (shared_bytes + REGISTERED_SHARED));
    blocks = blocks < BLOCKS_PER_SM ? blocks : BLOCKS_PER_SM;
    return blocks < by_shared ? blocks : by_shared;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle, int block_size,
                                                              size_t shared_bytes, unsigned int flags) {
    CUfunction function;
    CUresult entered = enter(handle, &function);
    if (entered)
        return entered;
    if (!blocks || block_size <= 0 || (flags & ~1u))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *blocks = block_size > 1024 ? 0 : blocks_per_sm(block_size, shared_bytes);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size,
                                                     size_t shared_bytes) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, shared_bytes,
                                                                0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid_size, int *block_size, CUfunction handle,
                                                   CUoccupancyB2DSize shared_of, size_t shared_bytes,
                                                   int limit, unsigned int flags) {
    CUfunction function;
    CUresult entered = enter(handle, &function);
    if (entered)
        return entered;
    if (!grid_size || !block_size || limit < 0 || (flags & ~1u))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *block_size = limit > 0 && limit < 768 ? limit : 768;
    size_t shared = shared_of ? shared_of(*block_size) : shared_bytes;
    *grid_size =
        blocks_per_sm(*block_size, shared) * (int)driver_gpu(function->module->context->device)->sm_count;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid_size, int *block_size, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t shared_bytes, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid_size, block_size, function, shared_of, shared_bytes,
                                                     limit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle, int blocks,
                                                 int block_size) {
    CUfunction function;
    CUresult entered = enter(handle, &function);
    if (entered)
        return entered;
    if (!bytes || blocks <= 0 || block_size <= 0)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *bytes = (size_t)(SHARED_PER_SM / blocks - REGISTERED_SHARED);
    return driver_leave(CUDA_SUCCESS);
}
