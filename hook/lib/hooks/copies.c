/* The wrappers of copies along one line: memory, and the first rows of arrays. Boxes are in boxes.c, lists of
 * copies in batches.c. */
#include "hooks/copies.h"

#include "driver/gpus.h"

/* An address that CUDA does not know is the host's. Managed memory counts as the device's, where it is mostly
 * used. */
bool plimsoll_is_on_device(CUdeviceptr address) {
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    return CALLED(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
           type != CU_MEMORYTYPE_HOST;
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
    return plimsoll_is_on_device(target) && plimsoll_is_on_device(source);
}

#define ANYWHERE(symbol, stream)                                                                             \
    PLIMSOLL_COPIES(symbol, stays_on_device(dst, src), stream,                                               \
                    (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount), (dst, src, ByteCount))

ANYWHERE(cuMemcpy, NULL)
ANYWHERE(cuMemcpy_ptds, CU_STREAM_PER_THREAD)

#define ANYWHERE_ASYNC(symbol, stream)                                                                       \
    PLIMSOLL_COPIES_ASYNC(symbol, stays_on_device(dst, src), stream,                                         \
                          (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),            \
                          (dst, src, ByteCount, hStream))

ANYWHERE_ASYNC(cuMemcpyAsync, hStream)
ANYWHERE_ASYNC(cuMemcpyAsync_ptsz, plimsoll_per_thread(hStream))

#define WITH_ATTRIBUTES(symbol, stream)                                                                      \
    PLIMSOLL_COPIES_ASYNC(                                                                                   \
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
