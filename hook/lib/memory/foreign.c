/* No call tells the size of an imported handle. But cuMemMap maps any first part of a handle, and refuses a
 * size past the handle's end. So the longest part that it maps is the size. The mappings are made in a range
 * of their own, give no access, and are undone at once. */
#include "memory/exports.h"

#include "driver/driver.h"
#include "driver/gpus.h"
#include "memory/bytes.h"
#include "memory/charge.h"
#include "memory/ledger.h"

/* Where the handle's memory lies; GPU_NONE for host memory and for multicast objects. */
static int gpu_of(CUmemGenericAllocationHandle handle, CUmemAllocationProp *prop) {
    return HAS(cuMemGetAllocationPropertiesFromHandle) &&
                   CALLED(cuMemGetAllocationPropertiesFromHandle)(prop, handle) == CUDA_SUCCESS
               ? plimsoll_gpu_of_location(&prop->location)
               : GPU_NONE;
}

static bool reaches(CUmemGenericAllocationHandle handle, CUdeviceptr range, uint64_t bytes) {
    return REAL(cuMemMap)(range, bytes, 0, handle, 0) == CUDA_SUCCESS &&
           REAL(cuMemUnmap)(range, bytes) == CUDA_SUCCESS;
}

static uint64_t longest_part(CUmemGenericAllocationHandle handle, CUdeviceptr range, uint64_t step,
                             uint64_t most_bytes) {
    uint64_t mapped = 0, refused = most_bytes / step + 1;
    while (refused - mapped > 1) {
        uint64_t middle = mapped + (refused - mapped) / 2;
        *(reaches(handle, range, middle * step) ? &mapped : &refused) = middle;
    }
    return mapped * step;
}

/* 0 where the driver does not tell, or the process may reserve no more addresses. */
static uint64_t bytes_of(CUmemGenericAllocationHandle handle, const CUmemAllocationProp *prop) {
    size_t step = 0, most_bytes = 0;
    CUdeviceptr range;
    if (CALLED(cuMemGetAllocationGranularity)(&step, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
            CUDA_SUCCESS ||
        step == 0 || REAL(cuDeviceTotalMem_v2)(&most_bytes, prop->location.id) != CUDA_SUCCESS)
        return 0;
    most_bytes -= most_bytes % step;
    if (CALLED(cuMemAddressReserve)(&range, most_bytes, 0, 0, 0) != CUDA_SUCCESS)
        return 0;
    uint64_t bytes = longest_part(handle, range, step, most_bytes);
    CALLED(cuMemAddressFree)(range, most_bytes);
    return bytes;
}

CUresult plimsoll_reserve_foreign(struct plimsoll_charge *charge, CUmemGenericAllocationHandle handle) {
    CUmemAllocationProp prop;
    plimsoll_depth++;
    int gpu = gpu_of(handle, &prop);
    uint64_t bytes = gpu == GPU_NONE ? 0 : bytes_of(handle, &prop);
    plimsoll_depth--;
    if (gpu >= 0 && bytes == 0) {
        bytes = PLIMSOLL_BLOCK_BYTES;
        if (!plimsoll_is_whole())
            plimsoll_measurement_due((unsigned)gpu);
    }
    CUresult result = plimsoll_reserve(charge, gpu, bytes);
    return result == CUDA_SUCCESS ? plimsoll_leave_hook(result) : result;
}

uint64_t plimsoll_bytes_of_file(int file) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    if (!plimsoll.driver[HOOK_cuMemImportFromShareableHandle] ||
        REAL(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)file,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS)
        return 0;
    uint64_t bytes = gpu_of(handle, &prop) == GPU_NONE ? 0 : bytes_of(handle, &prop);
    REAL(cuMemRelease)(handle);
    return bytes;
}
