/* The one way work takes into a stream: captured into a graph, or handed to the device. */
#ifndef PLIMSOLL_EMULATOR_SUBMIT_H
#define PLIMSOLL_EMULATOR_SUBMIT_H

#include "cuda/stream/work.h"

/* Enters the driver and finds the stream meant by a handle: INVALID_HANDLE where there is none. */
CUresult submit_enter(CUstream handle, CUstream *stream);
CUresult submit(CUstream stream, const struct work *work);
/* The same, and waits for it, for the synchronous copies; not possible while capturing. */
CUresult submit_and_finish(CUstream stream, const struct work *work);

#endif
