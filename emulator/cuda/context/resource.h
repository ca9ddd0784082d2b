/* Parts of a GPU's multiprocessors. Multiprocessors are counted, not simulated: a kernel takes as long in
 * any part. */
#ifndef PLIMSOLL_EMULATOR_RESOURCE_H
#define PLIMSOLL_EMULATOR_RESOURCE_H

#include "cuda/driver.h"

struct CUdevResourceDesc_st {
    struct object object;
    CUdevice device;
    unsigned sm_count;
};

/* The API's description of `sm_count` multiprocessors of a device. */
CUdevResource resource_of(CUdevice device, unsigned sm_count);

#endif
