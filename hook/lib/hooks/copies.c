/* The wrappers of copies: along one line, of boxes, and of lists of copies.
 *
 * A copy from device memory to device memory keeps the GPU as busy as a kernel does, so it is a launch. A
 * copy with one end in the host passes the gate, because the engines that move it are not shared by Plimsoll.
 * A copy that the host waits for ends a burst, whatever it moves.
 */
#include "driver/gpus.h"
#include "share/launch.h"

/* Whether an address of any kind lies on a device. Calls the driver, so use this only where the gate is shut
 * or metered. An address that CUDA does not know is the host's. Managed memory counts as the device's, where
 * it is mostly used. */
static bool is_on_device(CUdeviceptr address) {
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    return CALLED(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
           type != CU_MEMORYTYPE_HOST;
}

/* The whole hook of a copy in a stream, where only the arguments show whether it is a launch. */
#define COPIES_ASYNC(symbol, is_launch, stream, parameters, arguments)                                       \
    PLIMSOLL_GATED(symbol, parameters, arguments) {                                                          \
        struct plimsoll_launch launch;                                                                       \
        if (!(is_launch))                                                                                    \
            return REAL(symbol) arguments;                                                                   \
        plimsoll_enter_launch(&launch, stream);                                                              \
        return plimsoll_leave_launch(&launch, REAL(symbol) arguments);                                       \
    }

/* The whole hook of such a copy for which the host waits. */
#define COPIES(symbol, is_launch, stream, parameters, arguments)                                             \
    PLIMSOLL_GATED(symbol, parameters, arguments) {                                                          \
        struct plimsoll_launch launch;                                                                       \
        CUresult result;                                                                                     \
        if (is_launch) {                                                                                     \
            plimsoll_enter_launch(&launch, stream);                                                          \
            result = plimsoll_leave_launch(&launch, REAL(symbol) arguments);                                 \
        } else {                                                                                             \
            plimsoll_before_sync(stream);                                                                    \
            result = REAL(symbol) arguments;                                                                 \
        }                                                                                                    \
        plimsoll_after_sync();                                                                               \
        return result;                                                                                       \
    }

/* --- between two places on devices -----------------------------------------------------------------------
 */

#define DEVICE_TO_DEVICE(symbol, stream, pointer, size)                                                      \
    PLIMSOLL_LAUNCHES_AND_SYNCS(symbol, stream, (pointer dstDevice, pointer srcDevice, size ByteCount),      \
                                (dstDevice, srcDevice, ByteCount))

DEVICE_TO_DEVICE(cuMemcpyDtoD, NULL, CUdeviceptr_v1, unsigned)
DEVICE_TO_DEVICE(cuMemcpyDtoD_v2, NULL, CUdeviceptr, size_t)
DEVICE_TO_DEVICE(cuMemcpyDtoD_v2_ptds, CU_STREAM_PER_THREAD, CUdeviceptr, size_t)

#define DEVICE_TO_DEVICE_ASYNC(symbol, stream, pointer, size)                                                \
    PLIMSOLL_LAUNCHES(symbol, stream,                                                                        \
                      (pointer dstDevice, pointer srcDevice, size ByteCount, CUstream hStream),              \
                      (dstDevice, srcDevice, ByteCount, hStream))

DEVICE_TO_DEVICE_ASYNC(cuMemcpyDtoDAsync, hStream, CUdeviceptr_v1, unsigned)
DEVICE_TO_DEVICE_ASYNC(cuMemcpyDtoDAsync_v2, hStream, CUdeviceptr, size_t)
DEVICE_TO_DEVICE_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, plimsoll_per_thread(hStream), CUdeviceptr, size_t)

#define DEVICE_TO_ARRAY(symbol, stream, pointer, size)                                                       \
    PLIMSOLL_LAUNCHES_AND_SYNCS(symbol, stream,                                                              \
                                (CUarray dstArray, size dstOffset, pointer srcDevice, size ByteCount),       \
                                (dstArray, dstOffset, srcDevice, ByteCount))

DEVICE_TO_ARRAY(cuMemcpyDtoA, NULL, CUdeviceptr_v1, unsigned)
DEVICE_TO_ARRAY(cuMemcpyDtoA_v2, NULL, CUdeviceptr, size_t)
DEVICE_TO_ARRAY(cuMemcpyDtoA_v2_ptds, CU_STREAM_PER_THREAD, CUdeviceptr, size_t)

#define ARRAY_TO_DEVICE(symbol, stream, pointer, size)                                                       \
    PLIMSOLL_LAUNCHES_AND_SYNCS(symbol, stream,                                                              \
                                (pointer dstDevice, CUarray srcArray, size srcOffset, size ByteCount),       \
                                (dstDevice, srcArray, srcOffset, ByteCount))

ARRAY_TO_DEVICE(cuMemcpyAtoD, NULL, CUdeviceptr_v1, unsigned)
ARRAY_TO_DEVICE(cuMemcpyAtoD_v2, NULL, CUdeviceptr, size_t)
ARRAY_TO_DEVICE(cuMemcpyAtoD_v2_ptds, CU_STREAM_PER_THREAD, CUdeviceptr, size_t)

#define ARRAY_TO_ARRAY(symbol, stream, size)                                                                 \
    PLIMSOLL_LAUNCHES_AND_SYNCS(                                                                             \
        symbol, stream,                                                                                      \
        (CUarray dstArray, size dstOffset, CUarray srcArray, size srcOffset, size ByteCount),                \
        (dstArray, dstOffset, srcArray, srcOffset, ByteCount))

ARRAY_TO_ARRAY(cuMemcpyAtoA, NULL, unsigned)
ARRAY_TO_ARRAY(cuMemcpyAtoA_v2, NULL, size_t)
ARRAY_TO_ARRAY(cuMemcpyAtoA_v2_ptds, CU_STREAM_PER_THREAD, size_t)

/* A single gate stands before all GPUs of a container, so it does not matter which of them does the work. */
#define PEER_PARAMETERS                                                                                      \
    CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount

#define PEER(symbol, stream)                                                                                 \
    PLIMSOLL_LAUNCHES_AND_SYNCS(symbol, stream, (PEER_PARAMETERS),                                           \
                                (dstDevice, dstContext, srcDevice, srcContext, ByteCount))

PEER(cuMemcpyPeer, NULL)
PEER(cuMemcpyPeer_ptds, CU_STREAM_PER_THREAD)

#define PEER_ASYNC(symbol, stream)                                                                           \
    PLIMSOLL_LAUNCHES(symbol, stream, (PEER_PARAMETERS, CUstream hStream),                                   \
                      (dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream))

PEER_ASYNC(cuMemcpyPeerAsync, hStream)
PEER_ASYNC(cuMemcpyPeerAsync_ptsz, plimsoll_per_thread(hStream))

/* --- between places that only the addresses show ---------------------------------------------------------
 */

static bool stays_on_device(CUdeviceptr target, CUdeviceptr source) {
    return is_on_device(target) && is_on_device(source);
}

#define ANYWHERE(symbol, stream)                                                                             \
    COPIES(symbol, stays_on_device(dst, src), stream, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount),  \
           (dst, src, ByteCount))

ANYWHERE(cuMemcpy, NULL)
ANYWHERE(cuMemcpy_ptds, CU_STREAM_PER_THREAD)

#define ANYWHERE_ASYNC(symbol, stream)                                                                       \
    COPIES_ASYNC(symbol, stays_on_device(dst, src), stream,                                                  \
                 (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),                     \
                 (dst, src, ByteCount, hStream))

ANYWHERE_ASYNC(cuMemcpyAsync, hStream)
ANYWHERE_ASYNC(cuMemcpyAsync_ptsz, plimsoll_per_thread(hStream))

#define WITH_ATTRIBUTES(symbol, stream)                                                                      \
    COPIES_ASYNC(                                                                                            \
        symbol, stays_on_device(dst, src), stream,                                                           \
        (CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attr, CUstream hStream),         \
        (dst, src, size, attr, hStream))

WITH_ATTRIBUTES(cuMemcpyWithAttributesAsync, hStream)
WITH_ATTRIBUTES(cuMemcpyWithAttributesAsync_ptsz, plimsoll_per_thread(hStream))

/* --- between the host and a device: only waited for ------------------------------------------------------
 */

#define SYNCS(symbol, stream, parameters, arguments)                                                         \
    PLIMSOLL_SYNCS(symbol, plimsoll_before_sync(stream), parameters, arguments)

#define HOST_TO_DEVICE(symbol, stream, pointer, size)                                                        \
    SYNCS(symbol, stream, (pointer dstDevice, const void *srcHost, size ByteCount),                          \
          (dstDevice, srcHost, ByteCount))

HOST_TO_DEVICE(cuMemcpyHtoD, NULL, CUdeviceptr_v1, unsigned)
HOST_TO_DEVICE(cuMemcpyHtoD_v2, NULL, CUdeviceptr, size_t)
HOST_TO_DEVICE(cuMemcpyHtoD_v2_ptds, CU_STREAM_PER_THREAD, CUdeviceptr, size_t)

#define DEVICE_TO_HOST(symbol, stream, pointer, size)                                                        \
    SYNCS(symbol, stream, (void *dstHost, pointer srcDevice, size ByteCount), (dstHost, srcDevice, ByteCount))

DEVICE_TO_HOST(cuMemcpyDtoH, NULL, CUdeviceptr_v1, unsigned)
DEVICE_TO_HOST(cuMemcpyDtoH_v2, NULL, CUdeviceptr, size_t)
DEVICE_TO_HOST(cuMemcpyDtoH_v2_ptds, CU_STREAM_PER_THREAD, CUdeviceptr, size_t)

#define HOST_TO_ARRAY(symbol, stream, size)                                                                  \
    SYNCS(symbol, stream, (CUarray dstArray, size dstOffset, const void *srcHost, size ByteCount),           \
          (dstArray, dstOffset, srcHost, ByteCount))

HOST_TO_ARRAY(cuMemcpyHtoA, NULL, unsigned)
HOST_TO_ARRAY(cuMemcpyHtoA_v2, NULL, size_t)
HOST_TO_ARRAY(cuMemcpyHtoA_v2_ptds, CU_STREAM_PER_THREAD, size_t)

#define ARRAY_TO_HOST(symbol, stream, size)                                                                  \
    SYNCS(symbol, stream, (void *dstHost, CUarray srcArray, size srcOffset, size ByteCount),                 \
          (dstHost, srcArray, srcOffset, ByteCount))

ARRAY_TO_HOST(cuMemcpyAtoH, NULL, unsigned)
ARRAY_TO_HOST(cuMemcpyAtoH_v2, NULL, size_t)
ARRAY_TO_HOST(cuMemcpyAtoH_v2_ptds, CU_STREAM_PER_THREAD, size_t)

/* --- rectangles and boxes, whose ends a structure describes ---------------------------------------------
 *
 * A call without a structure is for the driver to refuse.
 */

/* The same for one end of a box. `address` matters only where the type is unified. */
static bool end_is_on_device(CUmemorytype type, CUdeviceptr address) {
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY ||
           (type == CU_MEMORYTYPE_UNIFIED && is_on_device(address));
}

/* The structures of all ages and dimensions have these four members in common. */
#define STAYS_ON_DEVICE(box)                                                                                 \
    ((box) && end_is_on_device((box)->dstMemoryType, (box)->dstDevice) &&                                    \
     end_is_on_device((box)->srcMemoryType, (box)->srcDevice))

#define BOX(symbol, stream, type) COPIES(symbol, STAYS_ON_DEVICE(pCopy), stream, (const type *pCopy), (pCopy))

BOX(cuMemcpy2D, NULL, CUDA_MEMCPY2D_v1)
BOX(cuMemcpy2D_v2, NULL, CUDA_MEMCPY2D)
BOX(cuMemcpy2D_v2_ptds, CU_STREAM_PER_THREAD, CUDA_MEMCPY2D)
BOX(cuMemcpy2DUnaligned, NULL, CUDA_MEMCPY2D_v1)
BOX(cuMemcpy2DUnaligned_v2, NULL, CUDA_MEMCPY2D)
BOX(cuMemcpy2DUnaligned_v2_ptds, CU_STREAM_PER_THREAD, CUDA_MEMCPY2D)
BOX(cuMemcpy3D, NULL, CUDA_MEMCPY3D_v1)
BOX(cuMemcpy3D_v2, NULL, CUDA_MEMCPY3D)
BOX(cuMemcpy3D_v2_ptds, CU_STREAM_PER_THREAD, CUDA_MEMCPY3D)
BOX(cuMemcpy3DPeer, NULL, CUDA_MEMCPY3D_PEER)
BOX(cuMemcpy3DPeer_ptds, CU_STREAM_PER_THREAD, CUDA_MEMCPY3D_PEER)

#define BOX_ASYNC(symbol, stream, type)                                                                      \
    COPIES_ASYNC(symbol, STAYS_ON_DEVICE(pCopy), stream, (const type *pCopy, CUstream hStream),              \
                 (pCopy, hStream))

BOX_ASYNC(cuMemcpy2DAsync, hStream, CUDA_MEMCPY2D_v1)
BOX_ASYNC(cuMemcpy2DAsync_v2, hStream, CUDA_MEMCPY2D)
BOX_ASYNC(cuMemcpy2DAsync_v2_ptsz, plimsoll_per_thread(hStream), CUDA_MEMCPY2D)
BOX_ASYNC(cuMemcpy3DAsync, hStream, CUDA_MEMCPY3D_v1)
BOX_ASYNC(cuMemcpy3DAsync_v2, hStream, CUDA_MEMCPY3D)
BOX_ASYNC(cuMemcpy3DAsync_v2_ptsz, plimsoll_per_thread(hStream), CUDA_MEMCPY3D)
BOX_ASYNC(cuMemcpy3DPeerAsync, hStream, CUDA_MEMCPY3D_PEER)
BOX_ASYNC(cuMemcpy3DPeerAsync_ptsz, plimsoll_per_thread(hStream), CUDA_MEMCPY3D_PEER)

/* --- lists of copies -------------------------------------------------------------------------------------
 *
 * Such a call is a launch if any of its copies stays on the device.
 */

static bool any_stays_on_device(const CUdeviceptr *targets, const CUdeviceptr *sources, size_t count) {
    for (size_t i = 0; targets && sources && i < count; i++)
        if (is_on_device(targets[i]) && is_on_device(sources[i]))
            return true;
    return false;
}

#define BATCH(symbol, stream)                                                                                \
    COPIES_ASYNC(symbol, any_stays_on_device(dsts, srcs, count), stream,                                     \
                 (CUdeviceptr * dsts, CUdeviceptr * srcs, size_t *sizes, size_t count,                       \
                  CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,            \
                  CUstream hStream),                                                                         \
                 (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream))

BATCH(cuMemcpyBatchAsync, hStream)
BATCH(cuMemcpyBatchAsync_ptsz, plimsoll_per_thread(hStream))

/* CUDA 13 no longer reports which of the copies failed. */
#define BATCH_V2(symbol, stream)                                                                             \
    COPIES_ASYNC(symbol, any_stays_on_device(dsts, srcs, count), stream,                                     \
                 (CUdeviceptr * dsts, CUdeviceptr * srcs, size_t *sizes, size_t count,                       \
                  CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream),          \
                 (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream))

BATCH_V2(cuMemcpyBatchAsync_v2, hStream)
BATCH_V2(cuMemcpyBatchAsync_v2_ptsz, plimsoll_per_thread(hStream))

/* --- lists of boxes
 * -----------------------------------------------------------------------------------------------
 */

static bool operand_is_on_device(const CUmemcpy3DOperand *operand) {
    return operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY || is_on_device(operand->op.ptr.ptr);
}

static bool any_box_stays_on_device(const CUDA_MEMCPY3D_BATCH_OP *list, size_t count) {
    for (size_t i = 0; list && i < count; i++)
        if (operand_is_on_device(&list[i].dst) && operand_is_on_device(&list[i].src))
            return true;
    return false;
}

#define BOXES(symbol, stream)                                                                                \
    COPIES_ASYNC(symbol, any_box_stays_on_device(opList, numOps), stream,                                    \
                 (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags,  \
                  CUstream hStream),                                                                         \
                 (numOps, opList, failIdx, flags, hStream))

BOXES(cuMemcpy3DBatchAsync, hStream)
BOXES(cuMemcpy3DBatchAsync_ptsz, plimsoll_per_thread(hStream))

#define BOXES_V2(symbol, stream)                                                                             \
    COPIES_ASYNC(                                                                                            \
        symbol, any_box_stays_on_device(opList, numOps), stream,                                             \
        (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream),         \
        (numOps, opList, flags, hStream))

BOXES_V2(cuMemcpy3DBatchAsync_v2, hStream)
BOXES_V2(cuMemcpy3DBatchAsync_v2_ptsz, plimsoll_per_thread(hStream))

#define BOX_WITH_ATTRIBUTES(symbol, stream)                                                                  \
    COPIES_ASYNC(symbol, any_box_stays_on_device(op, 1), stream,                                             \
                 (CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream hStream),                  \
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
