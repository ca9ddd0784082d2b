#include "cuda/context/resource.h"

#include <string.h>

CUdevResource resource_of(CUdevice device, unsigned sm_count) {
    CUdevResource resource = {.type = CU_DEV_RESOURCE_TYPE_SM};
    resource.sm.smCount = sm_count;
    memcpy(resource._internal_padding, &device, sizeof device);
    return resource;
}

static CUdevice device_of(const CUdevResource *resource) {
    CUdevice device;
    memcpy(&device, resource->_internal_padding, sizeof device);
    return device;
}

static CUresult whole(CUdevice device, CUdevResource *resource, CUdevResourceType type) {
    if (!driver_has_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!resource)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *resource = resource_of(device, driver_gpu(device)->sm_count);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type) {
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(whole(device, resource, type));
}

/* Rounds a count up to the smallest part or a multiple of it, by compute capability (CUDA programming
 * guide, "Green contexts"). */
static unsigned part_of(CUdevice device, unsigned count, unsigned flags) {
    unsigned major = driver_gpu(device)->compute_major;
    unsigned least = major >= 9 ? 8 : major == 8 ? 4 : 2, step = major >= 9 ? 8 : 2;
    if (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING)
        least = step = major >= 9 ? 2 : step;
    count = count < least ? least : count;
    return (count + step - 1) / step * step;
}

static CUresult split(CUdevResource *result, unsigned *groups, const CUdevResource *input,
                      CUdevResource *remaining, unsigned flags, unsigned count) {
    if (!groups || !input || count > input->sm.smCount || (flags & ~3u))
        return CUDA_ERROR_INVALID_VALUE;
    if (input->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    CUdevice device = device_of(input);
    if (!driver_has_device(device))
        return CUDA_ERROR_INVALID_VALUE;
    unsigned part = part_of(device, count, flags), most = input->sm.smCount / part;
    unsigned made = result && *groups < most ? *groups : most;
    for (unsigned i = 0; result && i < made; i++)
        result[i] = resource_of(device, part);
    if (remaining)
        *remaining = resource_of(device, input->sm.smCount - made * part);
    *groups = made;
    return CUDA_SUCCESS;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *groups, const CUdevResource *input,
                                     CUdevResource *remaining, unsigned int flags, unsigned int count) {
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(split(result, groups, input, remaining, flags, count));
}

static CUresult describe(CUdevResourceDesc *result, const CUdevResource *resources, unsigned count) {
    unsigned sm_count = 0;
    if (!result || !resources || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM)
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        if (device_of(&resources[i]) != device_of(&resources[0]))
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        sm_count += resources[i].sm.smCount;
    }
    struct CUdevResourceDesc_st *made = object_new(OBJECT_RESOURCES, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->device = device_of(&resources[0]);
    made->sm_count = sm_count;
    *result = made;
    return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *result, CUdevResource *resources, unsigned int count) {
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(describe(result, resources, count));
}
