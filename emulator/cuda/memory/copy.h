/* Copies and fills as work. Every copy is one of boxes; a line is a box one row high. */
#ifndef PLIMSOLL_EMULATOR_COPY_H
#define PLIMSOLL_EMULATOR_COPY_H

#include "cuda/stream/work.h"

/* A linear copy. Device addresses must lie in memory that the driver knows. */
struct work copy_line(uint64_t target, uint64_t source, size_t bytes);
/* The same copy as the API describes it, for who asks later what it was. */
CUDA_MEMCPY3D copy_line_box(CUdeviceptr target, CUdeviceptr source, size_t bytes);
/* A copy as the API describes it: INVALID_VALUE where it is not sound. */
CUresult copy_box(const CUDA_MEMCPY3D *box, struct work *work);
/* A fill of `height` rows of `width` elements: INVALID_VALUE where it is not sound. */
CUresult copy_fill(const CUDA_MEMSET_NODE_PARAMS *fill, struct work *work);

#endif
