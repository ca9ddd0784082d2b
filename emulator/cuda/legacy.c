/* The first versions of functions, whose sizes and addresses had 32 bits. They exist so that dlsym and
 * cuGetProcAddress find them, as in NVIDIA's library. An address that does not fit in 32 bits is reported
 * as out of memory, as on the cards of that time. */
#include <limits.h>

#include "cuda/driver.h"

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

CUresult cuMemFree(CUdeviceptr_v1 address) {
    return cuMemFree_v2(address);
}

CUresult cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned int *size, CUdeviceptr_v1 address) {
    CUdeviceptr wide_base;
    size_t wide_size;
    CUresult result = cuMemGetAddressRange_v2(&wide_base, &wide_size, address);
    if (result == CUDA_SUCCESS && base)
        *base = (CUdeviceptr_v1)wide_base;
    if (result == CUDA_SUCCESS && size)
        *size = clamp(wide_size);
    return result;
}

CUresult cuMemAllocHost(void **pointer, unsigned int bytes) {
    return cuMemAllocHost_v2(pointer, bytes);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *address, void *pointer, unsigned int flags) {
    CUdeviceptr wide;
    CUresult result = cuMemHostGetDevicePointer_v2(address ? &wide : NULL, pointer, flags);
    if (result == CUDA_SUCCESS && wide > UINT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *address = (CUdeviceptr_v1)wide;
    return result;
}

CUresult cuModuleGetGlobal(CUdeviceptr_v1 *address, unsigned int *bytes, CUmodule module, const char *name) {
    (void)address, (void)bytes;
    return cuModuleGetGlobal_v2(NULL, NULL, module, name);
}

CUresult cuMemcpyHtoD(CUdeviceptr_v1 target, const void *source, unsigned int bytes) {
    return cuMemcpyHtoD_v2(target, source, bytes);
}

CUresult cuMemcpyDtoH(void *target, CUdeviceptr_v1 source, unsigned int bytes) {
    return cuMemcpyDtoH_v2(target, source, bytes);
}

CUresult cuMemcpyDtoD(CUdeviceptr_v1 target, CUdeviceptr_v1 source, unsigned int bytes) {
    return cuMemcpyDtoD_v2(target, source, bytes);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 target, const void *source, unsigned int bytes, CUstream stream) {
    return cuMemcpyHtoDAsync_v2(target, source, bytes, stream);
}

CUresult cuMemcpyDtoHAsync(void *target, CUdeviceptr_v1 source, unsigned int bytes, CUstream stream) {
    return cuMemcpyDtoHAsync_v2(target, source, bytes, stream);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1 target, CUdeviceptr_v1 source, unsigned int bytes,
                           CUstream stream) {
    return cuMemcpyDtoDAsync_v2(target, source, bytes, stream);
}

CUresult cuMemcpyDtoA(CUarray array, unsigned int offset, CUdeviceptr_v1 source, unsigned int bytes) {
    return cuMemcpyDtoA_v2(array, offset, source, bytes);
}

CUresult cuMemcpyAtoD(CUdeviceptr_v1 target, CUarray array, unsigned int offset, unsigned int bytes) {
    return cuMemcpyAtoD_v2(target, array, offset, bytes);
}

CUresult cuMemcpyHtoA(CUarray array, unsigned int offset, const void *source, unsigned int bytes) {
    return cuMemcpyHtoA_v2(array, offset, source, bytes);
}

CUresult cuMemcpyAtoH(void *target, CUarray array, unsigned int offset, unsigned int bytes) {
    return cuMemcpyAtoH_v2(target, array, offset, bytes);
}

CUresult cuMemcpyAtoA(CUarray target, unsigned int target_offset, CUarray source, unsigned int source_offset,
                      unsigned int bytes) {
    return cuMemcpyAtoA_v2(target, target_offset, source, source_offset, bytes);
}

CUresult cuMemcpyHtoAAsync(CUarray array, unsigned int offset, const void *source, unsigned int bytes,
                           CUstream stream) {
    return cuMemcpyHtoAAsync_v2(array, offset, source, bytes, stream);
}

CUresult cuMemcpyAtoHAsync(void *target, CUarray array, unsigned int offset, unsigned int bytes,
                           CUstream stream) {
    return cuMemcpyAtoHAsync_v2(target, array, offset, bytes, stream);
}

CUresult cuMemsetD8(CUdeviceptr_v1 address, unsigned char value, unsigned int count) {
    return cuMemsetD8_v2(address, value, count);
}

CUresult cuMemsetD16(CUdeviceptr_v1 address, unsigned short value, unsigned int count) {
    return cuMemsetD16_v2(address, value, count);
}

CUresult cuMemsetD32(CUdeviceptr_v1 address, unsigned int value, unsigned int count) {
    return cuMemsetD32_v2(address, value, count);
}

CUresult cuMemsetD2D8(CUdeviceptr_v1 address, unsigned int pitch, unsigned char value, unsigned int width,
                      unsigned int height) {
    return cuMemsetD2D8_v2(address, pitch, value, width, height);
}

CUresult cuMemsetD2D16(CUdeviceptr_v1 address, unsigned int pitch, unsigned short value, unsigned int width,
                       unsigned int height) {
    return cuMemsetD2D16_v2(address, pitch, value, width, height);
}

CUresult cuMemsetD2D32(CUdeviceptr_v1 address, unsigned int pitch, unsigned int value, unsigned int width,
                       unsigned int height) {
    return cuMemsetD2D32_v2(address, pitch, value, width, height);
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

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *form, CUarray array) {
    CUDA_ARRAY_DESCRIPTOR wide;
    CUresult result = cuArrayGetDescriptor_v2(form ? &wide : NULL, array);
    if (result == CUDA_SUCCESS)
        *form = (CUDA_ARRAY_DESCRIPTOR_v1){.Width = clamp(wide.Width),
                                           .Height = clamp(wide.Height),
                                           .Format = wide.Format,
                                           .NumChannels = wide.NumChannels};
    return result;
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

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *form, CUarray array) {
    CUDA_ARRAY3D_DESCRIPTOR wide;
    CUresult result = cuArray3DGetDescriptor_v2(form ? &wide : NULL, array);
    if (result == CUDA_SUCCESS)
        *form = (CUDA_ARRAY3D_DESCRIPTOR_v1){.Width = clamp(wide.Width),
                                             .Height = clamp(wide.Height),
                                             .Depth = clamp(wide.Depth),
                                             .Format = wide.Format,
                                             .NumChannels = wide.NumChannels,
                                             .Flags = wide.Flags};
    return result;
}
