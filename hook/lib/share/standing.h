/* Standing: how long a launch waits before it goes to the driver.
 *
 * A launch stands until time opens the gate if nothing of its container executes, else for a bounded time. So
 * no wait is ever circular. While nothing executes, nothing is charged, and the gate opens by time and
 * accounts alone. While something executes, a launch goes after a bounded time even if what executes waits
 * for it: a kernel for a flag, a host function for a lock that the launching thread holds.
 */
#ifndef PLIMSOLL_STANDING_H
#define PLIMSOLL_STANDING_H

#include "state.h"

/* Waits until a launch into this stream, on this GPU of `limits`, may go. Call it with no lock, as one of no
 * meter's users. False in the child of a fork that a signal's handler made meanwhile. */
bool plimsoll_stand(int gpu, CUstream stream);

#endif
