/* Physical memory mapped into sparse arrays and those of deferred mapping. It lives as long as its handle or
 * such a mapping. Contents do not move with it: an array keeps its own, mapped or not. */
#include <string.h>

#include "cuda/memory/array.h"
#include "cuda/stream/stream.h"
#include "cuda/stream/submit.h"
#include "cuda/memory/vmm.h"

struct mapping {
    struct mapping *next;
    const void *array; /* CUarray or CUmipmappedArray */
    CUarraySparseSubresourceType type;
    unsigned char where[sizeof(((CUarrayMapInfo *)0)->subresource)];
    CUcontext context;
    struct physical *physical;
};

static struct mapping *first; /* lock */

static const CUDA_ARRAY3D_DESCRIPTOR *form_of(const CUarrayMapInfo *info) {
    if (info->resourceType == CU_RESOURCE_TYPE_ARRAY && object_is(info->resource.array, OBJECT_ARRAY))
        return &info->resource.array->form;
    if (info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY &&
        object_is(info->resource.mipmap, OBJECT_MIPMAP))
        return &info->resource.mipmap->levels[0]->form;
    return NULL;
}

static struct mapping **find(const CUarrayMapInfo *info) {
    struct mapping **link = &first;
    while (*link &&
           ((*link)->array != (const void *)info->resource.array || (*link)->type != info->subresourceType ||
            memcmp((*link)->where, &info->subresource, sizeof info->subresource) != 0))
        link = &(*link)->next;
    return link;
}

static void unmap(struct mapping **link) {
    struct mapping *mapping = *link;
    if (!mapping)
        return;
    *link = mapping->next;
    vmm_release(mapping->physical);
    free(mapping);
}

/* Checks one element; the list is carried out only if all are good. */
static CUresult check(const CUarrayMapInfo *info, struct physical **physical) {
    const CUDA_ARRAY3D_DESCRIPTOR *form = form_of(info);
    *physical = NULL;
    if (!form || !array_is_mapped_later(form))
        return CUDA_ERROR_INVALID_VALUE;
    if (info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP)
        return CUDA_SUCCESS;
    *physical = vmm_physical(info->memHandle.memHandle);
    bool good = info->memOperationType == CU_MEM_OPERATION_TYPE_MAP &&
                info->memHandleType == CU_MEM_HANDLE_TYPE_GENERIC && *physical &&
                info->offset < (*physical)->size &&
                (!(form->Flags & CUDA_ARRAY3D_SPARSE) ||
                 ((*physical)->props.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL));
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A second mapping of the same place takes the first one's. */
static CUresult carry_out(CUcontext context, const CUarrayMapInfo *info) {
    struct physical *physical;
    CUresult result = check(info, &physical);
    if (result)
        return result;
    struct mapping *mapping = physical ? calloc(1, sizeof *mapping) : NULL;
    if (physical && !mapping)
        return CUDA_ERROR_OUT_OF_MEMORY;
    unmap(find(info));
    if (!mapping)
        return CUDA_SUCCESS;
    *mapping = (struct mapping){
        .next = first, .array = info->resource.array, .type = info->subresourceType, .physical = physical};
    mapping->context = context;
    memcpy(mapping->where, &info->subresource, sizeof mapping->where);
    physical->uses++;
    first = mapping;
    return CUDA_SUCCESS;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int count, CUstream handle) {
    CUstream stream;
    struct physical *physical;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    if (!list || !count)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (stream->capture)
        return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = check(&list[i], &physical);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = carry_out(stream->context, &list[i]);
    return driver_leave(result);
}

void array_unmap_all(const void *array_or_context) {
    for (struct mapping **link = &first; *link;) {
        if ((*link)->array == array_or_context || (*link)->context == array_or_context)
            unmap(link);
        else
            link = &(*link)->next;
    }
}
