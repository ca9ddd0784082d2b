/* Physical memory across processes, by file descriptors. The memory lives as long as any process's handle
 * or mapping. */
#include <unistd.h>

#include "cuda/memory/vmm.h"

CUresult cuMemExportToShareableHandle(void *shareable, PHYSICAL handle, CUmemAllocationHandleType type,
                                      unsigned long long flags) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    struct physical *physical = vmm_physical(handle);
    if (!physical || !shareable || flags)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return driver_leave(CUDA_ERROR_NOT_SUPPORTED);
    if (!(physical->props.requestedHandleTypes & type))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!physical->share)
        physical->share = share_offer(physical->gpu, physical->size, physical->size, physical->fd);
    if (!physical->share)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    int fd = dup(physical->share->fd);
    *(int *)shareable = fd;
    return driver_leave(fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS);
}

/* Makes physical memory of a share and takes over the share; NULL without host memory. */
static struct physical *of_share(struct share *share) {
    struct physical *physical = object_new(OBJECT_PHYSICAL, sizeof *physical);
    if (!physical)
        return NULL;
    physical->size = share->bytes;
    physical->gpu = share->gpu;
    physical->fd = share->fd;
    physical->share = share;
    physical->uses = 1;
    physical->props =
        (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = share_device(share)}};
    return physical;
}

CUresult cuMemImportFromShareableHandle(PHYSICAL *handle, void *shareable, CUmemAllocationHandleType type) {
    struct share *share;
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!handle)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return driver_leave(CUDA_ERROR_NOT_SUPPORTED);
    CUresult result = share_take((int)(intptr_t)shareable, &share);
    if (result)
        return driver_leave(result);
    struct physical *physical = of_share(share);
    if (!physical) {
        share_drop(share);
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *handle = (PHYSICAL)(uintptr_t)physical;
    return driver_leave(CUDA_SUCCESS);
}

/* Works for imported handles and for own ones. */
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *props, PHYSICAL handle) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    const struct physical *physical = vmm_physical(handle);
    if (!physical || !props)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *props = physical->props;
    return driver_leave(CUDA_SUCCESS);
}
