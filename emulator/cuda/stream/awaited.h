/* Events that the whole of a context waits for, in streams still to come as well. */
#ifndef PLIMSOLL_EMULATOR_STREAM_AWAITED_H
#define PLIMSOLL_EMULATOR_STREAM_AWAITED_H

#include "cuda/stream/event.h"

/* Everything still to come in a context waits for the event's latest record. False without host memory. */
bool event_await(CUcontext context, CUevent event);
/* A new stream of a context waits for what its context waits for. */
void event_await_in_new(CUstream stream);
void event_await_no_more(CUcontext context);

#endif
