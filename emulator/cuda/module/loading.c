/* Calls that load modules and find functions in them. */
#include <stdlib.h>

#include "cuda/context/context.h"
#include "cuda/module/image.h"
#include "cuda/module/module.h"
#include "cuda/stream/queue.h"

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (!module || !image)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(module_load(context, image, module_image_bytes(image), module));
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                            void **values) {
    return count && (!options || !values) ? CUDA_ERROR_INVALID_VALUE : cuModuleLoadData(module, image);
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    if (!module || !path)
        return CUDA_ERROR_INVALID_VALUE;
    char *image = module_read_file(path);
    if (!image)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = cuModuleLoadData(module, image);
    free(image);
    return result;
}

CUresult cuModuleUnload(CUmodule module) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (!object_is(module, OBJECT_MODULE))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    queue_finish_context(module->context);
    module_free(module);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (!function || !name)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!object_is(module, OBJECT_MODULE))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    return driver_leave(module_find(module, name, function));
}

/* Images are not executed, so there are no variables in them. */
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
    (void)address;
    (void)bytes;
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!name)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(object_is(module, OBJECT_MODULE) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE);
}
