#include "cuda/module/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/context/context.h"
#include "cuda/memory/table.h"
#include "cuda/module/image.h"

static CUmodule first; /* lock */

/* A module costs its image's size, rounded up to a multiple of the node file's `module`. The card is
 * charged when a function is first launched, or at once with CUDA_MODULE_LOADING=EAGER. */
static bool is_lazy(void) {
    const char *mode = getenv("CUDA_MODULE_LOADING");
    return !mode || strcmp(mode, "EAGER") != 0;
}

bool module_require(CUmodule module) {
    CUcontext context = module->context;
    size_t piece = driver.book.node.gpus[context->gpu].module_bytes;
    size_t bytes = piece ? memory_round_up(module->image_bytes, piece) : 0;
    if (module->is_loaded)
        return true;
    if (bytes && !book_charge(&driver.book, context->gpu, bytes))
        return false;
    book_note(&driver.book, context->gpu, BOOK_MODULES, (int64_t)bytes);
    module->charged_bytes = bytes;
    module->is_loaded = true;
    return true;
}

static void refund(CUmodule module) {
    book_refund(&driver.book, module->context->gpu, module->charged_bytes);
    book_note(&driver.book, module->context->gpu, BOOK_MODULES, -(int64_t)module->charged_bytes);
}

CUresult module_load(CUcontext context, const void *image, size_t image_bytes, CUmodule *result) {
    CUmodule module = object_new(OBJECT_MODULE, sizeof *module);
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->context = context->owner;
    module->ptx = module_ptx_of(image);
    module->image_bytes = image_bytes;
    if (!is_lazy() && !module_require(module)) {
        free(module->ptx);
        object_free(module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->next = first;
    *result = first = module;
    return CUDA_SUCCESS;
}

static void fill_attributes(CUfunction function, const struct node_gpu *card) {
    int version = (int)(card->compute_major * 10 + card->compute_minor);
    function->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    function->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 16;
    function->attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = version;
    function->attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = version;
    function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 48 << 10;
    function->attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
}

CUresult module_find(CUmodule module, const char *name, CUfunction *result) {
    for (CUfunction function = module->functions; function; function = function->next) {
        if (strcmp(function->name, name) == 0) {
            *result = function;
            return CUDA_SUCCESS;
        }
    }
    if (!*name || strlen(name) >= MODULE_NAME_BYTES || (module->ptx && !module_ptx_has(module->ptx, name)))
        return CUDA_ERROR_NOT_FOUND;
    CUfunction function = object_new(OBJECT_FUNCTION, sizeof *function);
    if (!function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    function->module = module;
    snprintf(function->name, sizeof function->name, "%s", name);
    fill_attributes(function, driver_gpu(module->context->device));
    function->next = module->functions;
    *result = module->functions = function;
    return CUDA_SUCCESS;
}

void module_free(CUmodule module) {
    CUmodule *link = &first;
    while (*link != module)
        link = &(*link)->next;
    *link = module->next;
    refund(module);
    while (module->functions) {
        CUfunction function = module->functions;
        module->functions = function->next;
        free(function->old);
        object_free(function);
    }
    free(module->ptx);
    object_free(module);
}

void module_free_all(CUcontext context) {
    for (CUmodule module = first, next; module; module = next) {
        next = module->next;
        if (module->context == context)
            module_free(module);
    }
}

/* Sizes of the parameters of kernels that have any. Each parameter is aligned to its own size. */
static const struct {
    const char *name;
    size_t sizes[MODULE_PARAMETERS];
} signatures[] = {
    {"busy", {8}},
    {"spin", {8, 8, 4, 8, 4}},
};

bool module_is_spin(CUfunction function) {
    return strcmp(function->name, "spin") == 0;
}

bool module_parameter(CUfunction function, size_t index, size_t *offset, size_t *size) {
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++) {
        const size_t *sizes = signatures[i].sizes;
        if (strcmp(function->name, signatures[i].name) != 0 || index >= MODULE_PARAMETERS || !sizes[index])
            continue;
        *offset = 0;
        for (size_t before = 0; before < index; before++)
            *offset =
                (*offset + sizes[before] + sizes[before + 1] - 1) / sizes[before + 1] * sizes[before + 1];
        *size = sizes[index];
        return true;
    }
    return false;
}

/* The launch's parameters in one buffer, if the program passes them so; else NULL. */
static const char *buffer_of(void **extra) {
    for (; extra && extra[0] != CU_LAUNCH_PARAM_END; extra += 2)
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            return extra[1];
    return NULL;
}

CUresult module_parameters(CUfunction function, void **parameters, void **extra,
                           uint64_t values[MODULE_PARAMETERS], size_t *count) {
    const char *buffer = buffer_of(extra);
    size_t offset, size;
    for (*count = 0; module_parameter(function, *count, &offset, &size); ++*count) {
        if (!parameters && !buffer)
            return CUDA_ERROR_INVALID_VALUE;
        values[*count] = 0;
        memcpy(&values[*count], parameters ? parameters[*count] : buffer + offset, size);
    }
    return CUDA_SUCCESS;
}
