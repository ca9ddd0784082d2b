/* A driver that answers for cuMemAlloc with an export that no header declares. All else comes from the
 * emulator, which it is linked to under another name.
 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "emulated.h"

CUresult cuMemAlloc_v3(CUdeviceptr *address, size_t size);
CUresult cuMemAlloc_v3(CUdeviceptr *address, size_t size) {
    (void)address;
    (void)size;
    return cuDeviceGetCount(NULL);
}

CUresult cuGetProcAddress_v2(const char *name, void **address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    __typeof__(&cuMemAlloc_v3) newer = cuMemAlloc_v3;
    CUresult result = EMULATED(cuGetProcAddress_v2, name, address, version, flags, status);
    if (strcmp(name, "cuMemAlloc") == 0)
        memcpy(address, &newer, sizeof(newer));
    return result;
}
