/* The wrappers of calls with a list of copies. Such a call is a launch if any of its copies stays on the
 * device. */
#include "driver/gpus.h"
#include "hooks/copies.h"

static bool any_stays_on_device(const CUdeviceptr *targets, const CUdeviceptr *sources, size_t count) {
    for (size_t i = 0; targets && sources && i < count; i++)
        if (plimsoll_is_on_device(targets[i]) && plimsoll_is_on_device(sources[i]))
            return true;
    return false;
}

#define BATCH(symbol, stream)                                                                                \
    PLIMSOLL_COPIES_ASYNC(symbol, any_stays_on_device(dsts, srcs, count), stream,                            \
                          (CUdeviceptr * dsts, CUdeviceptr * srcs, size_t *sizes, size_t count,              \
                           CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,   \
                           CUstream hStream),                                                                \
                          (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream))

BATCH(cuMemcpyBatchAsync, hStream)
BATCH(cuMemcpyBatchAsync_ptsz, plimsoll_per_thread(hStream))

/* CUDA 13 no longer reports which of the copies failed. */
#define BATCH_V2(symbol, stream)                                                                             \
    PLIMSOLL_COPIES_ASYNC(symbol, any_stays_on_device(dsts, srcs, count), stream,                            \
                          (CUdeviceptr * dsts, CUdeviceptr * srcs, size_t *sizes, size_t count,              \
                           CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream), \
                          (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream))

BATCH_V2(cuMemcpyBatchAsync_v2, hStream)
BATCH_V2(cuMemcpyBatchAsync_v2_ptsz, plimsoll_per_thread(hStream))

/* --- boxes -----------------------------------------------------------------------------------------------
 */

static bool operand_is_on_device(const CUmemcpy3DOperand *operand) {
    return operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY || plimsoll_is_on_device(operand->op.ptr.ptr);
}

static bool any_box_stays_on_device(const CUDA_MEMCPY3D_BATCH_OP *list, size_t count) {
    for (size_t i = 0; list && i < count; i++)
        if (operand_is_on_device(&list[i].dst) && operand_is_on_device(&list[i].src))
            return true;
    return false;
}

#define BOXES(symbol, stream)                                                                                \
    PLIMSOLL_COPIES_ASYNC(symbol, any_box_stays_on_device(opList, numOps), stream,                           \
                          (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,                   \
                           unsigned long long flags, CUstream hStream),                                      \
                          (numOps, opList, failIdx, flags, hStream))

BOXES(cuMemcpy3DBatchAsync, hStream)
BOXES(cuMemcpy3DBatchAsync_ptsz, plimsoll_per_thread(hStream))

#define BOXES_V2(symbol, stream)                                                                             \
    PLIMSOLL_COPIES_ASYNC(                                                                                   \
        symbol, any_box_stays_on_device(opList, numOps), stream,                                             \
        (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream),         \
        (numOps, opList, flags, hStream))

BOXES_V2(cuMemcpy3DBatchAsync_v2, hStream)
BOXES_V2(cuMemcpy3DBatchAsync_v2_ptsz, plimsoll_per_thread(hStream))

#define BOX_WITH_ATTRIBUTES(symbol, stream)                                                                  \
    PLIMSOLL_COPIES_ASYNC(symbol, any_box_stays_on_device(op, 1), stream,                                    \
                          (CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream hStream),         \
                          (op, flags, hStream))

BOX_WITH_ATTRIBUTES(cuMemcpy3DWithAttributesAsync, hStream)
BOX_WITH_ATTRIBUTES(cuMemcpy3DWithAttributesAsync_ptsz, plimsoll_per_thread(hStream))

/* --- by engines of their own, from device memory to device memory ----------------------------------------
 *
 * The GPU's time during this work is charged to the container like that of kernels.
 */

#define DECOMPRESSES(symbol, on)                                                                             \
    PLIMSOLL_LAUNCHES(symbol, on,                                                                            \
                      (CUmemDecompressParams * paramsArray, size_t count, unsigned int flags,                \
                       size_t *errorIndex, CUstream stream),                                                 \
                      (paramsArray, count, flags, errorIndex, stream))

DECOMPRESSES(cuMemBatchDecompressAsync, stream)
DECOMPRESSES(cuMemBatchDecompressAsync_ptsz, plimsoll_per_thread(stream))

#define OVER_FABRIC(symbol, stream)                                                                          \
    PLIMSOLL_LAUNCHES(                                                                                       \
        symbol, stream,                                                                                      \
        (size_t numOps, CUDA_FABRIC_COPY_BATCH_OP *opList, unsigned long long flags, CUstream hStream),      \
        (numOps, opList, flags, hStream))

OVER_FABRIC(cuFabricCpyBatchAsync, hStream)
OVER_FABRIC(cuFabricCpyBatchAsync_ptsz, plimsoll_per_thread(hStream))
