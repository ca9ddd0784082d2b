/* Turns kernel launches into work. */
#ifndef PLIMSOLL_EMULATOR_LAUNCH_H
#define PLIMSOLL_EMULATOR_LAUNCH_H

#include "cuda/stream/work.h"

/* Makes the driver's checks of a launch and turns the launch into work. */
CUresult launch_work(CUcontext context, const CUDA_KERNEL_NODE_PARAMS *params, struct work *work);

#endif
