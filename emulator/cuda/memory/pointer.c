/* Attributes of addresses. */
#include <string.h>

#include "cuda/context/context.h"
#include "cuda/memory/memory.h"

static bool is_host(const struct allocation *allocation) {
    return allocation->kind == MEMORY_HOST || allocation->kind == MEMORY_REGISTERED;
}

static CUresult set_u64(void *value, uint64_t number) {
    memcpy(value, &number, sizeof number);
    return CUDA_SUCCESS;
}

static CUresult set_int(void *value, int number) {
    memcpy(value, &number, sizeof number);
    return CUDA_SUCCESS;
}

static CUresult set_bool(void *value, bool truth) {
    memset(value, truth, 1);
    return CUDA_SUCCESS;
}

static CUresult set_pointer(void *value, const void *pointer) {
    memcpy(value, &pointer, sizeof pointer);
    return CUDA_SUCCESS;
}

static CUresult get(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    const struct allocation *found = memory_find(address);
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPED && !found)
        return set_bool(value, false);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return set_pointer(value, found->context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return set_int(value, is_host(found) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return set_u64(value, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!is_host(found) && found->kind != MEMORY_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        return set_u64(value, address);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return set_u64(value, found->id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return set_bool(value, found->kind == MEMORY_MANAGED);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return set_int(value, found->device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return set_u64(value, found->base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return set_u64(value, found->size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return set_bool(value, true);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return set_pointer(value, found->pool);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return set_bool(value, found->kind == MEMORY_DEVICE);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    return driver_leave(value ? get(value, attribute, address) : CUDA_ERROR_INVALID_VALUE);
}

/* For an unknown address the driver returns zeros instead of an error. */
static void get_or_zero(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    if (get(value, attribute, address) == CUDA_SUCCESS)
        return;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        set_int(value, 0);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        set_int(value, -2);
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        set_bool(value, false);
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        set_int(value, 0);
        break;
    default:
        set_u64(value, 0);
    }
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **values,
                                CUdeviceptr address) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!count || !attributes || !values)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++)
        if (values[i])
            get_or_zero(values[i], attributes[i], address);
    return driver_leave(CUDA_SUCCESS);
}
