/* Modules, libraries, and the kernels in them. Any image loads; where it is PTX text, its entries are the
 * kernels that exist, and of anything else every name does. A kernel named `busy` takes one u64: how long it
 * runs, in nanoseconds. A kernel named `spin` takes five parameters; see spin.h. Every other one runs for
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
    bool is_loaded; /* its memory stands in the book, where modules cost any */
    CUfunction functions;
};

struct CUfunc_st {
    struct object object;
    CUfunction next; /* in its module */
    CUmodule module;
    CUkernel kernel; /* NULL = not from a library */
    char name[MODULE_NAME_BYTES];
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
    struct old_launch *old; /* what cuLaunchGrid goes by; NULL until the program says any of it */
};

/* The function meant by a handle; a library's kernel will do as well. NULL = neither. */
CUfunction module_function(CUcontext context, CUfunction handle);
/* Where a function's parameter lies; false = none that is known. */
bool module_parameter(CUfunction function, size_t index, size_t *offset, size_t *size);
/* A launch's parameters, and how many are known. INVALID_VALUE where they are missing. */
CUresult module_parameters(CUfunction function, void **parameters, void **extra,
                           uint64_t values[MODULE_PARAMETERS], size_t *count);
bool module_is_spin(CUfunction function);
/* OUT_OF_MEMORY where it is loaded eagerly and finds no room. */
CUresult module_load(CUcontext context, const void *image, size_t image_bytes, CUmodule *module);
/* Before a function of it runs: false where the card has no room for it. */
bool module_require(CUmodule module);
void module_refund(CUmodule module);
bool module_is_lazy(void);
CUresult module_find(CUmodule module, const char *name, CUfunction *function);
void module_free(CUmodule module);
void module_free_all(CUcontext context);

#endif
