/* Creation and destruction of streams. */
#ifndef PLIMSOLL_EMULATOR_STREAM_LIFETIME_H
#define PLIMSOLL_EMULATOR_STREAM_LIFETIME_H

#include "cuda/stream/stream.h"

/* Frees all streams of a context and drops their uncommitted work. */
void stream_free_all(CUcontext context);

#endif
