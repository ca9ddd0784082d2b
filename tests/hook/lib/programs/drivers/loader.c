/* The first of a driver's two files, as on WSL2: its functions pass their calls on to those of the second
 * file, whose look-up answers with the second file's own functions. The functions that are missing here are
 * found in the second file, to which this one is linked.
 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "emulated.h"

/* Keeps the linker from leaving the second file out. */
extern __typeof__(&cuDeviceGetCount) const linked;
__typeof__(&cuDeviceGetCount) const linked = cuDeviceGetCount;

CUresult cuInit(unsigned int flags) {
    return EMULATED(cuInit, flags);
}

CUresult cuDriverGetVersion(int *version) {
    return EMULATED(cuDriverGetVersion, version);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    return EMULATED(cuMemAlloc_v2, address, size);
}

CUresult cuGetProcAddress_v2(const char *name, void **address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    return EMULATED(cuGetProcAddress_v2, name, address, version, flags, status);
}
