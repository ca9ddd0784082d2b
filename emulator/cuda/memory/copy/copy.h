/* Copies and fills as work. Every copy is a copy of a box; a linear copy is a box one row high. */
#ifndef PLIMSOLL_EMULATOR_COPY_H
#define PLIMSOLL_EMULATOR_COPY_H

#include "cuda/stream/work.h"

/* Makes a linear copy. Device addresses must lie in known memory. */
struct work copy_line(uint64_t target, uint64_t source, size_t bytes);
/* Makes the copy that the API describes; INVALID_VALUE if the description is not valid. */
CUresult copy_box(const CUDA_MEMCPY3D *box, struct work *work);
/* Makes a fill of `height` rows of `width` elements; INVALID_VALUE if the description is not valid. */
CUresult copy_fill(const CUDA_MEMSET_NODE_PARAMS *fill, struct work *work);

#endif
