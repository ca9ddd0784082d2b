/* A function's attributes, parameters and loading. */
#include "cuda/module/module.h"

#include "cuda/context/context.h"

enum { SHARED_PER_SM = 100 << 10 };

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
