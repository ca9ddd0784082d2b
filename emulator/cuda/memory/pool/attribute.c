/* A pool's attributes: reserved and used bytes, and the threshold above which free memory is given back. */
#include "cuda/memory/pool/pool.h"

#define THRESHOLD CU_MEMPOOL_ATTR_RELEASE_THRESHOLD

static bool is_reuse(CUmemPool_attribute attribute) {
    return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

static CUresult get(const struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute, void *value) {
    if (is_reuse(attribute))
        *(int *)value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
    else if (attribute == THRESHOLD)
        *(cuuint64_t *)value = pool->threshold_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
        *(cuuint64_t *)value = pool->reserved_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        *(cuuint64_t *)value = pool->reserved_high_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        *(cuuint64_t *)value = pool->used_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        *(cuuint64_t *)value = pool->used_high_bytes;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(pool, OBJECT_POOL) || !value)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(get(pool, attribute, value));
}

static CUresult set(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value) {
    if (is_reuse(attribute))
        pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(const int *)value != 0;
    else if (attribute == THRESHOLD)
        pool->threshold_bytes = *(const cuuint64_t *)value;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && *(const cuuint64_t *)value == 0)
        pool->reserved_high_bytes = pool->reserved_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && *(const cuuint64_t *)value == 0)
        pool->used_high_bytes = pool->used_bytes;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(pool, OBJECT_POOL) || !value)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(set(pool, attribute, value));
}
