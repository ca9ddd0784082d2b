/* The only way of work into a stream: the stream's capture records the work, or the device runs it. */
#ifndef PLIMSOLL_EMULATOR_SUBMIT_H
#define PLIMSOLL_EMULATOR_SUBMIT_H

#include "cuda/stream/work.h"

/* Enters the driver and finds the stream that a handle means; INVALID_HANDLE if there is none. */
CUresult submit_enter(CUstream handle, CUstream *stream);
CUresult submit(CUstream stream, const struct work *work);
/* Submits work and waits for it, for synchronous copies. Fails while capturing. */
CUresult submit_and_finish(CUstream stream, const struct work *work);

#endif
