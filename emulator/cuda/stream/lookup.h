/* The streams of a context, and which one a handle means. */
#ifndef PLIMSOLL_EMULATOR_STREAM_LOOKUP_H
#define PLIMSOLL_EMULATOR_STREAM_LOOKUP_H

#include "cuda/stream/stream.h"

/* A stream among those of its context; NULL without host memory. Any priority will do. */
CUstream stream_make(CUcontext context, unsigned flags, int priority);
/* The stream meant by a handle in the current context: 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD included.
 * NULL where there is none. */
CUstream stream_of(CUcontext context, CUstream handle);
/* Makes handle 0 mean `stream` for this thread, for the _ptds and _ptsz functions; returns what it meant. */
CUstream stream_set_default(CUstream stream);

#endif
