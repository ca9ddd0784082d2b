/* Arrays and mipmapped arrays: opaque, charged in whole granules. */
#ifndef PLIMSOLL_EMULATOR_ARRAY_H
#define PLIMSOLL_EMULATOR_ARRAY_H

#include "cuda/driver.h"

enum { ARRAY_MAX_LEVELS = 18 };

struct CUarray_st {
    struct object object;
    CUcontext context;
    CUDA_ARRAY3D_DESCRIPTOR form;
    size_t row_bytes, rows, slices;
    uint64_t base;
    bool is_level; /* owned by a mipmapped array */
};

struct CUmipmappedArray_st {
    struct object object;
    unsigned level_count;
    CUarray levels[ARRAY_MAX_LEVELS];
};

/* True if such an array has no memory until cuMemMapArrayAsync maps some. */
static inline bool array_is_mapped_later(const CUDA_ARRAY3D_DESCRIPTOR *form) {
    return (form->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0;
}
/* Bytes of all levels together; 0 if the form is not valid. */
size_t array_mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned levels);
/* Makes a mipmapped array whose levels lie one after the other in imported memory. That memory is freed
 * with the first level. */
CUresult array_mipmap_at(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned levels,
                         uint64_t base, CUmipmappedArray *result);

#endif
