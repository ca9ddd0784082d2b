/* Streams come and go. */
#ifndef PLIMSOLL_EMULATOR_STREAM_LIFETIME_H
#define PLIMSOLL_EMULATOR_STREAM_LIFETIME_H

#include "cuda/stream/stream.h"

/* All streams of a context, with the work that they have not committed. */
void stream_free_all(CUcontext context);

#endif
