/* Batches of copies. All copies are checked before the first is submitted; each then runs by itself. */
#include <stdlib.h>
#include <string.h>

#include "cuda/context/context.h"
#include "cuda/memory/array/array.h"
#include "cuda/memory/copy/copy.h"
#include "cuda/memory/memory.h"
#include "cuda/stream/stream.h"
#include "cuda/stream/submit.h"

static bool valid_order(CUmemcpySrcAccessOrder order) {
    return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

/* Attributes apply from their copy to the next attributes' copy. The first must be at copy 0 and the
 * others in order. */
static bool valid_attributes(const CUmemcpyAttributes *attributes, const size_t *from, size_t number,
                             size_t count) {
    if (!attributes || !from || !number || number > count || from[0])
        return false;
    for (size_t i = 0; i < number; i++)
        if (!valid_order(attributes[i].srcAccessOrder) || from[i] >= count || (i && from[i] <= from[i - 1]))
            return false;
    return true;
}

/* Bytes per element of an operation, from its arrays. 0 if the arrays differ, or if there is none. */
static size_t element_bytes(const CUDA_MEMCPY3D_BATCH_OP *operation) {
    const CUmemcpy3DOperand *operands[] = {&operation->src, &operation->dst};
    size_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        if (operands[i]->type != CU_MEMCPY_OPERAND_TYPE_ARRAY)
            continue;
        CUarray array = operands[i]->op.array.array;
        size_t own = object_is(array, OBJECT_ARRAY) ? array->row_bytes / array->form.Width : 0;
        if (!own || (bytes && bytes != own))
            return 0;
        bytes = own;
    }
    return bytes ? bytes : 1;
}

static CUDA_MEMCPY3D box_of(const CUDA_MEMCPY3D_BATCH_OP *operation, size_t element) {
    const CUmemcpy3DOperand *from = &operation->src, *to = &operation->dst;
    CUDA_MEMCPY3D box = {.WidthInBytes = operation->extent.width * element,
                         .Height = operation->extent.height,
                         .Depth = operation->extent.depth,
                         .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                         .dstMemoryType = CU_MEMORYTYPE_UNIFIED};
    if (from->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        box.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        box.srcArray = from->op.array.array;
        box.srcXInBytes = from->op.array.offset.x * element;
        box.srcY = from->op.array.offset.y;
        box.srcZ = from->op.array.offset.z;
    } else {
        box.srcDevice = from->op.ptr.ptr;
        box.srcPitch = from->op.ptr.rowLength * element;
        box.srcHeight = from->op.ptr.layerHeight;
    }
    if (to->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        box.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        box.dstArray = to->op.array.array;
        box.dstXInBytes = to->op.array.offset.x * element;
        box.dstY = to->op.array.offset.y;
        box.dstZ = to->op.array.offset.z;
    } else {
        box.dstDevice = to->op.ptr.ptr;
        box.dstPitch = to->op.ptr.rowLength * element;
        box.dstHeight = to->op.ptr.layerHeight;
    }
    return box;
}

/* Gives copy number `i` of a batch; false if that copy is not valid. */
typedef bool (*batch_box)(const void *batch, size_t i, CUDA_MEMCPY3D *box);

struct lines {
    const CUdeviceptr *targets, *sources;
    const size_t *sizes;
};

static bool line_of_batch(const void *batch, size_t i, CUDA_MEMCPY3D *box) {
    const struct lines *lines = batch;
    *box = (CUDA_MEMCPY3D){.WidthInBytes = lines->sizes[i],
                           .Height = 1,
                           .Depth = 1,
                           .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = lines->sources[i],
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = lines->targets[i]};
    return true;
}

static bool box_of_batch(const void *batch, size_t i, CUDA_MEMCPY3D *box) {
    const CUDA_MEMCPY3D_BATCH_OP *operation = (const CUDA_MEMCPY3D_BATCH_OP *)batch + i;
    size_t element = element_bytes(operation);
    if (!element || !valid_order(operation->srcAccessOrder))
        return false;
    *box = box_of(operation, element);
    return true;
}

static CUresult check_all(const void *batch, size_t count, batch_box box_at, size_t *failed) {
    for (size_t i = 0; i < count; i++) {
        struct work work;
        CUDA_MEMCPY3D box;
        if (box_at(batch, i, &box) && copy_box(&box, &work) == CUDA_SUCCESS)
            continue;
        *failed = i;
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult run(const void *batch, size_t count, batch_box box_at, size_t *failed, CUstream handle) {
    CUstream stream;
    size_t unread;
    failed = failed ? failed : &unread;
    *failed = SIZE_MAX;
    CUresult result = submit_enter(handle, &stream);
    if (result)
        return result;
    if (stream == stream->context->legacy)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    result = check_all(batch, count, box_at, failed);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        struct work work;
        CUDA_MEMCPY3D box;
        box_at(batch, i, &box);
        result = copy_box(&box, &work);
        result = result ? result : submit(stream, &work);
    }
    return driver_leave(result);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attributes, size_t *from, size_t number, size_t *failed,
                            CUstream stream) {
    const struct lines lines = {targets, sources, sizes};
    if (failed)
        *failed = SIZE_MAX;
    if (!targets || !sources || !sizes || !valid_attributes(attributes, from, number, count))
        return CUDA_ERROR_INVALID_VALUE;
    return run(&lines, count, line_of_batch, failed, stream);
}

CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *operations, size_t *failed,
                              unsigned long long flags, CUstream stream) {
    if (failed)
        *failed = SIZE_MAX;
    if (!operations || !count || flags)
        return CUDA_ERROR_INVALID_VALUE;
    return run(operations, count, box_of_batch, failed, stream);
}
