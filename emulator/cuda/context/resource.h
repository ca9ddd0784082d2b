/* Parts of a GPU's multiprocessors. They are counted, not simulated: kernels take as long in any part. */
#ifndef PLIMSOLL_EMULATOR_RESOURCE_H
#define PLIMSOLL_EMULATOR_RESOURCE_H

#include "cuda/driver.h"

struct CUdevResourceDesc_st {
    struct object object;
    CUdevice device;
    unsigned sm_count;
};

/* So many multiprocessors of a device, as the API shows them. */
CUdevResource resource_of(CUdevice device, unsigned sm_count);

#endif
