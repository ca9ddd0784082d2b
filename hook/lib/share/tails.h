/* Tails: the launches into a stream that no mark follows yet. */
#ifndef PLIMSOLL_TAILS_H
#define PLIMSOLL_TAILS_H

#include "driver/cuda_api.h"

/* Marks the tail of a stream, if there is one. For a thread that is about to use the stream. */
void plimsoll_see_to_tail(CUstream stream);

#endif
