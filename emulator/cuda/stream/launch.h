/* Kernel launches as work. */
#ifndef PLIMSOLL_EMULATOR_LAUNCH_H
#define PLIMSOLL_EMULATOR_LAUNCH_H

#include "cuda/stream/work.h"

/* Checks a launch as the driver does and turns it into work; `params` must outlive the submission. */
CUresult launch_work(CUcontext context, const CUDA_KERNEL_NODE_PARAMS *params, struct work *work);

#endif
