/* Libraries: images that belong to no context. Each context gets its own module at first use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/context/context.h"
#include "cuda/module/image.h"
#include "cuda/module/module.h"

enum { CONTEXTS = 16 };

struct CUlib_st {
    struct object object;
    char *ptx; /* NULL = not text: any name is a kernel */
    size_t image_bytes;
    CUkernel kernels;
    struct {
        CUcontext context;
        unsigned long long id; /* the context's id, as its address may be used again */
        CUmodule module;
    } modules[CONTEXTS];
};

struct CUkern_st {
    struct object object;
    CUkernel next; /* in its library */
    CUlibrary library;
    char name[MODULE_NAME_BYTES];
};

static CUresult load(CUlibrary *result, const void *image) {
    CUlibrary library = object_new(OBJECT_LIBRARY, sizeof *library);
    if (!library)
        return CUDA_ERROR_OUT_OF_MEMORY;
    library->ptx = module_ptx_of(image);
    library->image_bytes = module_image_bytes(image);
    *result = library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
                           unsigned int jit_count, CUlibraryOption *options, void **values,
                           unsigned int count) {
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!library || !code)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(load(library, code));
}

CUresult cuLibraryUnload(CUlibrary library) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(library, OBJECT_LIBRARY))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    while (library->kernels) {
        CUkernel kernel = library->kernels;
        library->kernels = kernel->next;
        object_free(kernel);
    }
    for (int i = 0; i < CONTEXTS; i++)
        if (object_is(library->modules[i].module, OBJECT_MODULE))
            module_free(library->modules[i].module);
    free(library->ptx);
    object_free(library);
    return driver_leave(CUDA_SUCCESS);
}

static CUresult find(CUlibrary library, const char *name, CUkernel *result) {
    for (CUkernel kernel = library->kernels; kernel; kernel = kernel->next) {
        if (strcmp(kernel->name, name) == 0) {
            *result = kernel;
            return CUDA_SUCCESS;
        }
    }
    if (!*name || strlen(name) >= MODULE_NAME_BYTES || (library->ptx && !module_ptx_has(library->ptx, name)))
        return CUDA_ERROR_NOT_FOUND;
    CUkernel kernel = object_new(OBJECT_KERNEL, sizeof *kernel);
    if (!kernel)
        return CUDA_ERROR_OUT_OF_MEMORY;
    kernel->library = library;
    snprintf(kernel->name, sizeof kernel->name, "%s", name);
    kernel->next = library->kernels;
    *result = library->kernels = kernel;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!kernel || !name)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!object_is(library, OBJECT_LIBRARY))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    return driver_leave(find(library, name, kernel));
}

static CUmodule *slot_for(CUlibrary library, CUcontext context) {
    for (int i = 0; i < CONTEXTS; i++)
        if (library->modules[i].context == context && library->modules[i].id == context->id &&
            object_is(library->modules[i].module, OBJECT_MODULE))
            return &library->modules[i].module;
    for (int i = 0; i < CONTEXTS; i++) {
        if (object_is(library->modules[i].module, OBJECT_MODULE))
            continue;
        library->modules[i].context = context;
        library->modules[i].id = context->id;
        library->modules[i].module = NULL;
        return &library->modules[i].module;
    }
    return NULL;
}

static CUresult module_in(CUlibrary library, CUcontext context, CUmodule *module) {
    CUmodule *slot = slot_for(library, context);
    CUresult result = CUDA_SUCCESS;
    if (!slot)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!*slot)
        result = module_load(context, library->ptx ? library->ptx : "\177LIB", library->image_bytes, slot);
    *module = *slot;
    return result;
}

static CUresult function_in(CUkernel kernel, CUcontext context, CUfunction *function) {
    CUmodule module;
    CUresult result = module_in(kernel->library, context, &module);
    return result ? result : module_find(module, kernel->name, function);
}

CUfunction module_function(CUcontext context, CUfunction handle) {
    CUfunction function;
    if (object_is(handle, OBJECT_FUNCTION))
        return handle;
    if (!object_is(handle, OBJECT_KERNEL))
        return NULL;
    return function_in((CUkernel)(void *)handle, context, &function) == CUDA_SUCCESS ? function : NULL;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (!function)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!object_is(kernel, OBJECT_KERNEL))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    return driver_leave(function_in(kernel, context, function));
}
