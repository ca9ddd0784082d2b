/* GPU memory: taken by any variant of any function, described, mapped and given back. */
#define _GNU_SOURCE
#include "asker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IS(name) (strcmp(function, #name) == 0)

static CUmemAllocationProp on_device(int device) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    return prop;
}

static CUDA_ARRAY3D_DESCRIPTOR array_of(size_t bytes) {
    return (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = 1024, .Height = bytes / 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
}

static CUresult array(const char *function, size_t bytes, number *handle) {
    CUDA_ARRAY3D_DESCRIPTOR solid = array_of(bytes);
    CUDA_ARRAY_DESCRIPTOR flat = {solid.Width, solid.Height, solid.Format, solid.NumChannels};
    CUDA_ARRAY_DESCRIPTOR_v1 old = {(unsigned)solid.Width, (unsigned)solid.Height, solid.Format, 1};
    CUDA_ARRAY3D_DESCRIPTOR_v1 old3 = {(unsigned)solid.Width, (unsigned)solid.Height, 0, solid.Format, 1, 0};
    if (IS(cuArrayCreate_v2))
        return FUNCTION(cuArrayCreate_v2)((CUarray *)handle, &flat);
    if (IS(cuArrayCreate))
        return FUNCTION(cuArrayCreate)((CUarray *)handle, &old);
    if (IS(cuArray3DCreate_v2))
        return FUNCTION(cuArray3DCreate_v2)((CUarray *)handle, &solid);
    if (IS(cuArray3DCreate))
        return FUNCTION(cuArray3DCreate)((CUarray *)handle, &old3);
    return FUNCTION(cuMipmappedArrayCreate)((CUmipmappedArray *)handle, &solid, 1);
}

/* `pool` 0 stands for the default pool of the device. */
static CUresult pooled(const char *function, size_t bytes, number pool, int device, number *handle) {
    CUmemoryPool from = (CUmemoryPool)(uintptr_t)pool;
    CUresult result = pool ? CUDA_SUCCESS : FUNCTION(cuDeviceGetDefaultMemPool)(&from, device);
    if (result != CUDA_SUCCESS)
        return result;
    if (IS(cuMemAllocFromPoolAsync))
        return FUNCTION(cuMemAllocFromPoolAsync)((CUdeviceptr *)handle, bytes, from, NULL);
    return FUNCTION(cuMemAllocFromPoolAsync_ptsz)((CUdeviceptr *)handle, bytes, from, NULL);
}

static CUresult allocate(const char *function, size_t bytes, int device, number pool, number *handle) {
    CUdeviceptr *pointer = (CUdeviceptr *)handle;
    CUmemAllocationProp prop = on_device(device);
    size_t pitch;
    unsigned pitch_v1;
    if (IS(cuMemAlloc_v2))
        return FUNCTION(cuMemAlloc_v2)(pointer, bytes);
    if (IS(cuMemAlloc))
        return FUNCTION(cuMemAlloc)((CUdeviceptr_v1 *)handle, (unsigned)bytes);
    if (IS(cuMemAllocPitch_v2))
        return FUNCTION(cuMemAllocPitch_v2)(pointer, &pitch, 4096, bytes / 4096, 4);
    if (IS(cuMemAllocPitch))
        return FUNCTION(cuMemAllocPitch)((CUdeviceptr_v1 *)handle, &pitch_v1, 4096, (unsigned)(bytes / 4096),
                                         4);
    if (IS(cuMemAllocManaged))
        return FUNCTION(cuMemAllocManaged)(pointer, bytes, CU_MEM_ATTACH_GLOBAL);
    if (IS(cuMemAllocAsync))
        return FUNCTION(cuMemAllocAsync)(pointer, bytes, NULL);
    if (IS(cuMemAllocAsync_ptsz))
        return FUNCTION(cuMemAllocAsync_ptsz)(pointer, bytes, NULL);
    if (IS(cuMemCreate))
        return FUNCTION(cuMemCreate)(handle, bytes, &prop, 0);
    if (strncmp(function, "cuMemAllocFromPool", 18) == 0)
        return pooled(function, bytes, pool, device, handle);
    return array(function, bytes, handle);
}

static CUresult give_back(const char *function, number handle) {
    if (IS(cuMemFree_v2))
        return FUNCTION(cuMemFree_v2)(handle);
    if (IS(cuMemFree))
        return FUNCTION(cuMemFree)((CUdeviceptr_v1)handle);
    if (IS(cuMemFreeAsync))
        return FUNCTION(cuMemFreeAsync)(handle, NULL);
    if (IS(cuMemFreeAsync_ptsz))
        return FUNCTION(cuMemFreeAsync_ptsz)(handle, NULL);
    if (IS(cuMemRelease))
        return FUNCTION(cuMemRelease)(handle);
    if (IS(cuArrayDestroy))
        return FUNCTION(cuArrayDestroy)((CUarray)(uintptr_t)handle);
    if (IS(cuMemPoolDestroy))
        return FUNCTION(cuMemPoolDestroy)((CUmemoryPool)(uintptr_t)handle);
    return FUNCTION(cuMipmappedArrayDestroy)((CUmipmappedArray)(uintptr_t)handle);
}

void do_alloc(const char *text) {
    char function[64];
    number bytes = 0, handle = 0, pool = 0;
    int device = 0;
    sscanf(text, "%63s %llu %d %llu", function, &bytes, &device, &pool);
    errno = 77;
    CUresult result = allocate(function, bytes, device, pool, &handle);
    printf("%d %llu %d\n", result, handle, errno);
}

void do_free(const char *text) {
    char function[64];
    number handle = 0;
    sscanf(text, "%63s %llu", function, &handle);
    printf("%d\n", give_back(function, handle));
}

void do_info(const char *unused) {
    (void)unused;
    size_t free_bytes = 0, total_bytes = 0;
    CUresult result = FUNCTION(cuMemGetInfo_v2)(&free_bytes, &total_bytes);
    printf("%d %zu %zu\n", result, free_bytes, total_bytes);
}

void do_info_v1(const char *unused) {
    (void)unused;
    unsigned free_bytes = 0, total_bytes = 0;
    CUresult result = FUNCTION(cuMemGetInfo)(&free_bytes, &total_bytes);
    printf("%d %u %u\n", result, free_bytes, total_bytes);
}

void do_total(const char *text) {
    size_t bytes = 0;
    CUresult result = FUNCTION(cuDeviceTotalMem_v2)(&bytes, atoi(text));
    printf("%d %zu\n", result, bytes);
}

void do_pool(const char *text) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = atoi(text);
    CUmemoryPool pool = NULL;
    CUresult result = FUNCTION(cuMemPoolCreate)(&pool, &props);
    printf("%d %llu\n", result, (number)(uintptr_t)pool);
}

void do_map(const char *text) {
    number handle = 0, bytes = 0;
    CUdeviceptr at = 0;
    sscanf(text, "%llu %llu", &handle, &bytes);
    CUresult result = FUNCTION(cuMemAddressReserve)(&at, bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS)
        result = FUNCTION(cuMemMap)(at, bytes, 0, handle, 0);
    printf("%d %llu\n", result, at);
}

void do_unmap(const char *text) {
    number at = 0, bytes = 0;
    sscanf(text, "%llu %llu", &at, &bytes);
    printf("%d\n", FUNCTION(cuMemUnmap)(at, bytes));
}

/* Memory as another process would have exported it: it is imported here, and its own handle released. */
static CUresult import(size_t bytes, CUmemGenericAllocationHandle *imported) {
    CUmemAllocationProp prop = on_device(0);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle made = 0;
    int file = -1;
    CUresult result = FUNCTION(cuMemCreate)(&made, bytes, &prop, 0);
    if (result == CUDA_SUCCESS)
        result = FUNCTION(cuMemExportToShareableHandle)(&file, made, prop.requestedHandleTypes, 0);
    if (result == CUDA_SUCCESS)
        result = FUNCTION(cuMemImportFromShareableHandle)(imported, (void *)(uintptr_t)file,
                                                          prop.requestedHandleTypes);
    if (result == CUDA_SUCCESS)
        result = FUNCTION(cuMemRelease)(made);
    return result;
}

void do_beside(const char *text) {
    number handle = 0, bytes = 0;
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle imported = 0;
    sscanf(text, "%llu %llu", &handle, &bytes);
    CUresult result = import((size_t)2 << 20, &imported);
    if (result == CUDA_SUCCESS)
        result = FUNCTION(cuMemAddressReserve)(&at, ((size_t)2 << 20) + bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS)
        result = FUNCTION(cuMemMap)(at, (size_t)2 << 20, 0, imported, 0);
    if (result == CUDA_SUCCESS)
        result = FUNCTION(cuMemMap)(at + ((size_t)2 << 20), bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS)
        result = FUNCTION(cuMemUnmap)(at, ((size_t)2 << 20) + bytes);
    if (result == CUDA_SUCCESS)
        result = FUNCTION(cuMemRelease)(imported);
    printf("%d\n", result);
}
