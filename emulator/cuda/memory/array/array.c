#include "cuda/memory/array/array.h"

#include "cuda/context/context.h"
#include "cuda/memory/array/mapping.h"
#include "cuda/memory/memory.h"
#include "cuda/stream/capture/capture.h"
#include "cuda/stream/queue.h"

static size_t element_bytes(CUarray_format format) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default: /* block-compressed and planar formats are not emulated */
        return 0;
    }
}

static bool shape(CUarray array) {
    const CUDA_ARRAY3D_DESCRIPTOR *form = &array->form;
    size_t slice_bytes, bytes, element = element_bytes(form->Format) * form->NumChannels;
    bool channels = form->NumChannels == 1 || form->NumChannels == 2 || form->NumChannels == 4;
    array->rows = form->Height ? form->Height : 1;
    array->slices = form->Depth ? form->Depth : 1;
    return channels && element && form->Width &&
           !__builtin_mul_overflow(form->Width, element, &array->row_bytes) &&
           !__builtin_mul_overflow(array->row_bytes, array->rows, &slice_bytes) &&
           !__builtin_mul_overflow(slice_bytes, array->slices, &bytes);
}

/* Reserves addresses without memory. Memory that is mapped there later is charged through its own handle. */
static CUresult reserve(CUcontext context, CUarray array) {
    size_t bytes = array->row_bytes * array->rows * array->slices;
    struct allocation allocation = {.base = memory_back(bytes),
                                    .size = bytes,
                                    .kind = MEMORY_MAPPED,
                                    .context = context,
                                    .gpu = context->gpu,
                                    .device = context->device};
    if (!allocation.base || !memory_add(&allocation))
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->base = allocation.base;
    return CUDA_SUCCESS;
}

/* Makes an array at an address, or with memory of its own if `base` is 0. */
static CUresult make_at(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR *form, uint64_t base,
                        CUarray *result) {
    CUarray array = object_new(OBJECT_ARRAY, sizeof *array);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context = context->owner;
    array->context = context;
    array->form = *form;
    array->base = base;
    CUresult outcome = CUDA_ERROR_INVALID_VALUE;
    bool good = shape(array);
    if (good && base)
        outcome = CUDA_SUCCESS;
    else if (good && array_is_mapped_later(form))
        outcome = reserve(context, array);
    else if (good)
        outcome = memory_allocate(context, MEMORY_DEVICE, array->row_bytes * array->rows * array->slices,
                                  &array->base);
    if (outcome)
        object_free(array);
    else
        *result = array;
    return outcome;
}

static CUresult make(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR *form, CUarray *result) {
    return make_at(context, form, 0, result);
}

static void discard(CUarray array) {
    array_unmap_all(array);
    struct allocation *allocation = memory_find(array->base);
    if (allocation)
        memory_release(allocation);
    object_free(array);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *form) {
    CUcontext context;
    CUresult entered = capture_enter(&context);
    if (entered)
        return entered;
    return driver_leave(array && form ? make(context, form, array) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *flat) {
    if (!flat)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR form = {.Width = flat->Width,
                                    .Height = flat->Height,
                                    .Format = flat->Format,
                                    .NumChannels = flat->NumChannels};
    return cuArray3DCreate_v2(array, &form);
}

CUresult cuArrayDestroy(CUarray array) {
    CUcontext context;
    CUresult entered = capture_enter(&context);
    if (entered)
        return entered;
    if (!object_is(array, OBJECT_ARRAY) || array->is_level)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    queue_finish_context(array->context);
    discard(array);
    return driver_leave(CUDA_SUCCESS);
}

static size_t halved(size_t extent, unsigned level) {
    size_t result = extent >> level;
    return extent && !result ? 1 : result;
}

static void discard_mipmap(CUmipmappedArray mipmap) {
    array_unmap_all(mipmap);
    for (unsigned level = 0; level < mipmap->level_count; level++)
        discard(mipmap->levels[level]);
    object_free(mipmap);
}

static CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned level) {
    CUDA_ARRAY3D_DESCRIPTOR part = *form;
    part.Width = halved(form->Width, level);
    part.Height = halved(form->Height, level);
    part.Depth = halved(form->Depth, level);
    return part;
}

size_t array_mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned levels) {
    size_t bytes = 0;
    for (unsigned level = 0; level < levels; level++) {
        struct CUarray_st array = {.form = level_of(form, level)};
        if (!shape(&array))
            return 0;
        bytes += array.row_bytes * array.rows * array.slices;
    }
    return bytes;
}

/* Makes the levels from `base` on, or each with memory of its own if `base` is 0. */
static CUresult make_levels(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned count,
                            uint64_t base, CUmipmappedArray mipmap) {
    for (unsigned level = 0; level < count; level++) {
        CUDA_ARRAY3D_DESCRIPTOR part = level_of(form, level);
        CUresult result = make_at(context, &part, base, &mipmap->levels[level]);
        if (result)
            return result;
        if (base)
            base += array_mipmap_bytes(&part, 1);
        mipmap->levels[level]->is_level = true;
        mipmap->level_count = level + 1;
    }
    return CUDA_SUCCESS;
}

CUresult array_mipmap_at(CUcontext context, const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned levels,
                         uint64_t base, CUmipmappedArray *result) {
    CUmipmappedArray mipmap = object_new(OBJECT_MIPMAP, sizeof *mipmap);
    if (!mipmap)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult outcome = make_levels(context, form, levels, base, mipmap);
    if (outcome)
        discard_mipmap(mipmap);
    else
        *result = mipmap;
    return outcome;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *result, const CUDA_ARRAY3D_DESCRIPTOR *form,
                                unsigned int levels) {
    CUcontext context;
    CUresult entered = capture_enter(&context);
    if (entered)
        return entered;
    if (!result || !form || !levels || levels > ARRAY_MAX_LEVELS)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(array_mipmap_at(context, form, levels, 0, result));
}

CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray mipmap, unsigned int level) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!object_is(mipmap, OBJECT_MIPMAP))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (!array || level >= mipmap->level_count)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *array = mipmap->levels[level];
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap) {
    CUcontext context;
    CUresult entered = capture_enter(&context);
    if (entered)
        return entered;
    if (!object_is(mipmap, OBJECT_MIPMAP))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    queue_finish_context(context);
    discard_mipmap(mipmap);
    return driver_leave(CUDA_SUCCESS);
}
