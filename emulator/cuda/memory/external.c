/* External memory: another API or process exports it as an opaque descriptor, and the program maps buffers
 * and mipmapped arrays in it. Here every such descriptor comes from cuMemExportToShareableHandle. */
#include <unistd.h>

#include "cuda/context/context.h"
#include "cuda/memory/array/array.h"
#include "cuda/memory/memory.h"
#include "cuda/memory/share.h"

struct CUextMemory_st {
    struct object object;
    struct share *share;
    size_t size;
};

static CUresult import(const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *form, CUexternalMemory *result) {
    struct share *share;
    if (form->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!form->size || (form->flags & ~(unsigned)CUDA_EXTERNAL_MEMORY_DEDICATED))
        return CUDA_ERROR_INVALID_VALUE;
    CUexternalMemory memory = object_new(OBJECT_EXTERNAL_MEMORY, sizeof *memory);
    if (!memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult outcome = share_take(form->handle.fd, &share);
    if (outcome == CUDA_SUCCESS && form->size > share->bytes) {
        share_drop(share);
        outcome = CUDA_ERROR_INVALID_VALUE;
    }
    if (outcome) {
        object_free(memory);
        return outcome;
    }
    close(form->handle.fd); /* an import takes over the descriptor */
    memory->share = share;
    memory->size = form->size;
    *result = memory;
    return CUDA_SUCCESS;
}

CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *form) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    return driver_leave(memory && form ? import(form, memory) : CUDA_ERROR_INVALID_VALUE);
}

/* Maps the whole share again, and enters the requested range as imported memory. */
static CUresult map(CUcontext context, CUexternalMemory memory, uint64_t offset, uint64_t size,
                    uint64_t *address) {
    if (!size || offset > memory->size || size > memory->size - offset)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t base = share_map(memory->share);
    struct allocation allocation = {.base = base + offset,
                                    .size = size,
                                    .kind = MEMORY_IMPORTED,
                                    .context = context,
                                    .gpu = memory->share->gpu,
                                    .device = share_device(memory->share),
                                    .share = memory->share,
                                    .share_offset = offset};
    if (!base)
        return CUDA_ERROR_MAP_FAILED;
    if (!memory_add(&allocation)) {
        memory_unback(base, memory->share->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    share_use(memory->share);
    *address = allocation.base;
    return CUDA_SUCCESS;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *address, CUexternalMemory memory,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *form) {
    CUcontext context;
    uint64_t base;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (!object_is(memory, OBJECT_EXTERNAL_MEMORY))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (!address || !form || form->flags)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    CUresult result = map(context, memory, form->offset, form->size, &base);
    if (result == CUDA_SUCCESS)
        *address = base;
    return driver_leave(result);
}

CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *result, CUexternalMemory memory,
                                                 const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *form) {
    CUcontext context;
    uint64_t base;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (!object_is(memory, OBJECT_EXTERNAL_MEMORY))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (!result || !form || !form->numLevels || form->numLevels > ARRAY_MAX_LEVELS)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    size_t bytes = array_mipmap_bytes(&form->arrayDesc, form->numLevels);
    CUresult outcome = bytes ? map(context, memory, form->offset, bytes, &base) : CUDA_ERROR_INVALID_VALUE;
    if (outcome)
        return driver_leave(outcome);
    outcome = array_mipmap_at(context, &form->arrayDesc, form->numLevels, base, result);
    if (outcome)
        memory_release(memory_find(base));
    return driver_leave(outcome);
}

/* Memory mapped from the import stays until the program frees it. */
CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(memory, OBJECT_EXTERNAL_MEMORY))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    share_drop(memory->share);
    object_free(memory);
    return driver_leave(CUDA_SUCCESS);
}
