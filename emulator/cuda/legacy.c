/* The first versions of functions, whose sizes and addresses had 32 bits. They exist so that dlsym and
 * cuGetProcAddress find them, as in NVIDIA's library. An address that does not fit in 32 bits is reported
 * as out of memory, as on the cards of that time. */
#include <limits.h>

#include "cuda/driver.h"
#include "cuda/signature.h"

static unsigned clamp(size_t bytes) {
    return bytes > UINT_MAX ? UINT_MAX : (unsigned)bytes;
}

/* Keeps an allocation only if its address fits. */
static CUresult narrow(CUresult result, CUdeviceptr address, CUdeviceptr_v1 *narrowed) {
    if (result)
        return result;
    if (address > UINT_MAX) {
        cuMemFree_v2(address);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *narrowed = (CUdeviceptr_v1)address;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device) {
    size_t wide;
    CUresult result = cuDeviceTotalMem_v2(bytes ? &wide : NULL, device);
    if (result == CUDA_SUCCESS)
        *bytes = clamp(wide);
    return result;
}

CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes) {
    size_t wide_free, wide_total;
    CUresult result = cuMemGetInfo_v2(free_bytes ? &wide_free : NULL, total_bytes ? &wide_total : NULL);
    if (result == CUDA_SUCCESS) {
        *free_bytes = clamp(wide_free);
        *total_bytes = clamp(wide_total);
    }
    return result;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned int bytes) {
    CUdeviceptr wide = 0;
    CUresult result = cuMemAlloc_v2(address ? &wide : NULL, bytes);
    return narrow(result, wide, address);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned int *pitch, unsigned int width,
                         unsigned int height, unsigned int element) {
    CUdeviceptr wide = 0;
    size_t wide_pitch = 0;
    CUresult result =
        cuMemAllocPitch_v2(address ? &wide : NULL, pitch ? &wide_pitch : NULL, width, height, element);
    result = narrow(result, wide, address);
    if (result == CUDA_SUCCESS)
        *pitch = clamp(wide_pitch);
    return result;
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *form) {
    if (!form)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY_DESCRIPTOR wide = {.Width = form->Width,
                                  .Height = form->Height,
                                  .Format = form->Format,
                                  .NumChannels = form->NumChannels};
    return cuArrayCreate_v2(array, &wide);
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *form) {
    if (!form)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR wide = {.Width = form->Width,
                                    .Height = form->Height,
                                    .Depth = form->Depth,
                                    .Format = form->Format,
                                    .NumChannels = form->NumChannels,
                                    .Flags = form->Flags};
    return cuArray3DCreate_v2(array, &wide);
}

SAME(cuMemFree, cuMemFree_v2, CUdeviceptr_v1)
SAME(cuMemAllocHost, cuMemAllocHost_v2, void **, unsigned)
SAME(cuMemcpyHtoD, cuMemcpyHtoD_v2, CUdeviceptr_v1, const void *, unsigned)
SAME(cuMemcpyDtoH, cuMemcpyDtoH_v2, void *, CUdeviceptr_v1, unsigned)
SAME(cuMemcpyDtoD, cuMemcpyDtoD_v2, CUdeviceptr_v1, CUdeviceptr_v1, unsigned)
SAME(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, CUdeviceptr_v1, const void *, unsigned, CUstream)
SAME(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, void *, CUdeviceptr_v1, unsigned, CUstream)
SAME(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, CUdeviceptr_v1, CUdeviceptr_v1, unsigned, CUstream)
SAME(cuMemcpyDtoA, cuMemcpyDtoA_v2, CUarray, unsigned, CUdeviceptr_v1, unsigned)
SAME(cuMemcpyAtoD, cuMemcpyAtoD_v2, CUdeviceptr_v1, CUarray, unsigned, unsigned)
SAME(cuMemcpyHtoA, cuMemcpyHtoA_v2, CUarray, unsigned, const void *, unsigned)
SAME(cuMemcpyAtoH, cuMemcpyAtoH_v2, void *, CUarray, unsigned, unsigned)
SAME(cuMemcpyAtoA, cuMemcpyAtoA_v2, CUarray, unsigned, CUarray, unsigned, unsigned)
SAME(cuMemcpyHtoAAsync, cuMemcpyHtoAAsync_v2, CUarray, unsigned, const void *, unsigned, CUstream)
SAME(cuMemcpyAtoHAsync, cuMemcpyAtoHAsync_v2, void *, CUarray, unsigned, unsigned, CUstream)
SAME(cuMemsetD8, cuMemsetD8_v2, CUdeviceptr_v1, unsigned char, unsigned)
SAME(cuMemsetD16, cuMemsetD16_v2, CUdeviceptr_v1, unsigned short, unsigned)
SAME(cuMemsetD32, cuMemsetD32_v2, CUdeviceptr_v1, unsigned, unsigned)
SAME(cuMemsetD2D8, cuMemsetD2D8_v2, CUdeviceptr_v1, unsigned, unsigned char, unsigned, unsigned)
SAME(cuMemsetD2D16, cuMemsetD2D16_v2, CUdeviceptr_v1, unsigned, unsigned short, unsigned, unsigned)
SAME(cuMemsetD2D32, cuMemsetD2D32_v2, CUdeviceptr_v1, unsigned, unsigned, unsigned, unsigned)
