/* Events for which a whole context waits, streams created later included. */
#ifndef PLIMSOLL_EMULATOR_STREAM_AWAITED_H
#define PLIMSOLL_EMULATOR_STREAM_AWAITED_H

#include "cuda/stream/event/event.h"

/* Makes all later work of a context wait for the event's latest record. False without host memory. */
bool event_await(CUcontext context, CUevent event);
/* Makes a new stream wait for the events for which its context waits. */
void event_await_in_new(CUstream stream);
void event_await_no_more(CUcontext context);

#endif
