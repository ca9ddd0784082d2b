/* The streams of a context, found by handle. */
#ifndef PLIMSOLL_EMULATOR_STREAM_LOOKUP_H
#define PLIMSOLL_EMULATOR_STREAM_LOOKUP_H

#include "cuda/stream/stream.h"

/* Makes a stream in its context; NULL without host memory. The priority is clamped to the valid range. */
CUstream stream_make(CUcontext context, unsigned flags, int priority);
/* The stream that a handle means in the current context, also for 0, CU_STREAM_LEGACY and
 * CU_STREAM_PER_THREAD. NULL if the handle is invalid. */
CUstream stream_of(CUcontext context, CUstream handle);
/* Makes handle 0 mean `stream` for this thread, for the _ptds and _ptsz functions; returns the previous
 * meaning. */
CUstream stream_set_default(CUstream stream);

#endif
