/* Modules and the kernels in them. Any image loads. If the image is PTX text, its entries are the kernels
 * that exist; in any other image every name is a kernel. A kernel named `busy` takes one u64: its run time
 * in nanoseconds. A kernel named `spin` takes five parameters; see spin.h. Every other kernel runs for
 * MODULE_KERNEL_NS. */
#ifndef PLIMSOLL_EMULATOR_MODULE_H
#define PLIMSOLL_EMULATOR_MODULE_H

#include "cuda/driver.h"

enum { MODULE_KERNEL_NS = 10000, MODULE_NAME_BYTES = 256, MODULE_PARAMETERS = 5 };

struct CUmod_st {
    struct object object;
    CUmodule next; /* of all */
    CUcontext context;
    char *ptx; /* NULL = not text */
    size_t image_bytes, charged_bytes;
    bool is_loaded; /* the book charges its memory, if modules cost any */
    CUfunction functions;
};

struct CUfunc_st {
    struct object object;
    CUfunction next; /* in its module */
    CUmodule module;
    char name[MODULE_NAME_BYTES];
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
    struct old_launch *old; /* settings for cuLaunchGrid; NULL until the program sets one */
};

/* The function of a handle; a library's kernel is accepted too. NULL if the handle is neither. */
CUfunction module_function(CUcontext context, CUfunction handle);
/* The offset and size of a function's parameter; false if that parameter is unknown. */
bool module_parameter(CUfunction function, size_t index, size_t *offset, size_t *size);
/* Reads a launch's parameters; *count is the number of known ones. INVALID_VALUE if parameters are
 * missing. */
CUresult module_parameters(CUfunction function, void **parameters, void **extra,
                           uint64_t values[MODULE_PARAMETERS], size_t *count);
bool module_is_spin(CUfunction function);
/* Loads a module. OUT_OF_MEMORY if modules load eagerly and the card has no room. */
CUresult module_load(CUcontext context, const void *image, size_t image_bytes, CUmodule *module);
/* Charges the module before one of its functions runs; false if the card has no room. */
bool module_require(CUmodule module);
CUresult module_find(CUmodule module, const char *name, CUfunction *function);
void module_free(CUmodule module);
void module_free_all(CUcontext context);

#endif
