/* Standing: how long a launch waits at the gate before it goes to the driver.
 *
 * If nothing of its container executes, a launch stands until time opens the gate. Otherwise it stands for a
 * bounded time. So no wait is circular. While nothing executes, the container is charged nothing, and time
 * and its accounts alone open the gate. While something executes, that work may wait for this launch: a
 * kernel for a flag, a host function for a lock that the launching thread holds. The bound ends such a wait.
 */
#ifndef PLIMSOLL_STANDING_H
#define PLIMSOLL_STANDING_H

#include "state.h"

/* Waits until a launch into this stream, on this GPU of `limits`, may go. Call this without any lock, in a
 * thread that is no meter's user. Returns false in the child of a fork that a signal handler made during the
 * wait. */
bool plimsoll_stand(int gpu, CUstream stream);

#endif
