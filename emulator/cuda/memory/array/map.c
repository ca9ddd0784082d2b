/* Maps physical memory into sparse arrays and arrays of deferred mapping. The memory lives as long as its
 * handle or such a mapping. Contents do not move with it: an array keeps its own contents, mapped or not. */
#include "cuda/memory/array/array.h"
#include "cuda/memory/array/mapping.h"
#include "cuda/stream/stream.h"
#include "cuda/stream/submit.h"

static const CUDA_ARRAY3D_DESCRIPTOR *form_of(const CUarrayMapInfo *info) {
    if (info->resourceType == CU_RESOURCE_TYPE_ARRAY && object_is(info->resource.array, OBJECT_ARRAY))
        return &info->resource.array->form;
    if (info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY &&
        object_is(info->resource.mipmap, OBJECT_MIPMAP))
        return &info->resource.mipmap->levels[0]->form;
    return NULL;
}

/* Checks one element. The list is carried out only if all elements are valid. */
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

/* Carries out one element of the list. */
static CUresult carry_out(CUcontext context, const CUarrayMapInfo *info) {
    struct physical *physical;
    CUresult result = check(info, &physical);
    return result ? result : array_map(context, info, physical);
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
