/* Arrays and mipmapped arrays: opaque, charged in whole granules. */
#ifndef PLIMSOLL_EMULATOR_ARRAY_H
#define PLIMSOLL_EMULATOR_ARRAY_H

#include "driver.h"

enum { ARRAY_MAX_LEVELS = 18 };

struct CUarray_st {
    struct object object;
    CUcontext context;
    CUDA_ARRAY3D_DESCRIPTOR form;
    size_t row_bytes, rows, slices;
    uint64_t base;
    bool is_level; /* owned by a mipmapped array */
};

#endif
