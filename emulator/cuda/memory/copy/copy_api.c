/* The API's many copy functions: linear, to and from arrays, of boxes, between devices. */
#include <string.h>

#include "cuda/memory/array/array.h"
#include "cuda/memory/copy/copy.h"
#include "cuda/memory/memory.h"
#include "cuda/stream/stream.h"
#include "cuda/stream/submit.h"

enum { TO_DEVICE = 1, FROM_DEVICE = 2 };

static uint64_t address_of(const void *pointer) {
    return (uint64_t)(uintptr_t)pointer;
}

/* `sides` names the ends that must be device memory. With none, each end may be any memory. */
static CUresult copy(uint64_t target, uint64_t source, size_t bytes, int sides, CUstream handle, bool wait) {
    CUstream stream;
    CUresult entered = submit_enter(handle, &stream);
    if (entered)
        return entered;
    if (!bytes)
        return driver_leave(CUDA_SUCCESS);
    if (!target || !source || ((sides & TO_DEVICE) && !memory_holds(target, bytes)) ||
        ((sides & FROM_DEVICE) && !memory_holds(source, bytes)))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct work work = copy_line(target, source, bytes);
    return driver_leave(wait ? submit_and_finish(stream, &work) : submit(stream, &work));
}

CUresult cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
    return copy(target, source, bytes, 0, NULL, true);
}

CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
    return copy(target, source, bytes, 0, stream, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t bytes) {
    return copy(target, address_of(source), bytes, TO_DEVICE, NULL, true);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t bytes, CUstream stream) {
    return copy(target, address_of(source), bytes, TO_DEVICE, stream, false);
}

CUresult cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t bytes) {
    return copy(address_of(target), source, bytes, FROM_DEVICE, NULL, true);
}

CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t bytes, CUstream stream) {
    return copy(address_of(target), source, bytes, FROM_DEVICE, stream, false);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
    return copy(target, source, bytes, TO_DEVICE | FROM_DEVICE, NULL, true);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
    return copy(target, source, bytes, TO_DEVICE | FROM_DEVICE, stream, false);
}

CUresult cuMemcpyPeer(CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                      CUcontext source_context, size_t bytes) {
    (void)target_context, (void)source_context;
    return copy(target, source, bytes, TO_DEVICE | FROM_DEVICE, NULL, true);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                           CUcontext source_context, size_t bytes, CUstream stream) {
    (void)target_context, (void)source_context;
    return copy(target, source, bytes, TO_DEVICE | FROM_DEVICE, stream, false);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *box, CUstream handle, bool wait) {
    struct work work;
    CUstream stream;
    if (!box)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = submit_enter(handle, &stream);
    if (result)
        return result;
    result = copy_box(box, &work);
    if (result == CUDA_SUCCESS)
        result = wait ? submit_and_finish(stream, &work) : submit(stream, &work);
    return driver_leave(result);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *box) {
    return copy_3d(box, NULL, true);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *box, CUstream stream) {
    return copy_3d(box, stream, false);
}

/* The fields of a box's source or target, which every form of a box has. */
#define SIDE(side, form)                                                                                     \
    .side##XInBytes = form->side##XInBytes, .side##Y = form->side##Y,                                        \
    .side##MemoryType = form->side##MemoryType, .side##Host = form->side##Host,                              \
    .side##Device = form->side##Device, .side##Array = form->side##Array, .side##Pitch = form->side##Pitch

static CUDA_MEMCPY3D box_of(const CUDA_MEMCPY2D *flat) {
    return (CUDA_MEMCPY3D){SIDE(src, flat), SIDE(dst, flat), .WidthInBytes = flat->WidthInBytes,
                           .Height = flat->Height, .Depth = 1};
}

static CUresult copy_2d(const CUDA_MEMCPY2D *flat, CUstream stream, bool wait) {
    if (!flat)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D box = box_of(flat);
    return copy_3d(&box, stream, wait);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *flat) {
    return copy_2d(flat, NULL, true);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *flat) {
    return copy_2d(flat, NULL, true);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *flat, CUstream stream) {
    return copy_2d(flat, stream, false);
}

static CUDA_MEMCPY3D box_between_peers(const CUDA_MEMCPY3D_PEER *peer) {
    return (CUDA_MEMCPY3D){SIDE(src, peer),
                           .srcZ = peer->srcZ,
                           .srcHeight = peer->srcHeight,
                           SIDE(dst, peer),
                           .dstZ = peer->dstZ,
                           .dstHeight = peer->dstHeight,
                           .WidthInBytes = peer->WidthInBytes,
                           .Height = peer->Height,
                           .Depth = peer->Depth};
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *peer) {
    if (!peer)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D box = box_between_peers(peer);
    return copy_3d(&box, NULL, true);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *peer, CUstream stream) {
    if (!peer)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D box = box_between_peers(peer);
    return copy_3d(&box, stream, false);
}

/* Copies to and from an array count bytes along its first row. */
static CUresult copy_array(CUDA_MEMCPY3D box, size_t bytes, CUstream stream, bool wait) {
    if (!bytes)
        return CUDA_SUCCESS;
    box.WidthInBytes = bytes;
    box.Height = box.Depth = 1;
    return copy_3d(&box, stream, wait);
}

/* The source or the target of such a copy. */
#define IN_ARRAY(side, array, offset)                                                                        \
    .side##MemoryType = CU_MEMORYTYPE_ARRAY, .side##Array = array, .side##XInBytes = offset
#define ON_HOST(side, address) .side##MemoryType = CU_MEMORYTYPE_HOST, .side##Host = address
#define ON_DEVICE(side, address) .side##MemoryType = CU_MEMORYTYPE_DEVICE, .side##Device = address

CUresult cuMemcpyHtoA_v2(CUarray array, size_t offset, const void *source, size_t bytes) {
    CUDA_MEMCPY3D box = {ON_HOST(src, source), IN_ARRAY(dst, array, offset)};
    return copy_array(box, bytes, NULL, true);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray array, size_t offset, const void *source, size_t bytes,
                              CUstream stream) {
    CUDA_MEMCPY3D box = {ON_HOST(src, source), IN_ARRAY(dst, array, offset)};
    return copy_array(box, bytes, stream, false);
}

CUresult cuMemcpyAtoH_v2(void *target, CUarray array, size_t offset, size_t bytes) {
    CUDA_MEMCPY3D box = {IN_ARRAY(src, array, offset), ON_HOST(dst, target)};
    return copy_array(box, bytes, NULL, true);
}

CUresult cuMemcpyAtoHAsync_v2(void *target, CUarray array, size_t offset, size_t bytes, CUstream stream) {
    CUDA_MEMCPY3D box = {IN_ARRAY(src, array, offset), ON_HOST(dst, target)};
    return copy_array(box, bytes, stream, false);
}

CUresult cuMemcpyDtoA_v2(CUarray array, size_t offset, CUdeviceptr source, size_t bytes) {
    CUDA_MEMCPY3D box = {ON_DEVICE(src, source), IN_ARRAY(dst, array, offset)};
    return copy_array(box, bytes, NULL, true);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr target, CUarray array, size_t offset, size_t bytes) {
    CUDA_MEMCPY3D box = {IN_ARRAY(src, array, offset), ON_DEVICE(dst, target)};
    return copy_array(box, bytes, NULL, true);
}

CUresult cuMemcpyAtoA_v2(CUarray target, size_t target_offset, CUarray source, size_t source_offset,
                         size_t bytes) {
    CUDA_MEMCPY3D box = {IN_ARRAY(src, source, source_offset), IN_ARRAY(dst, target, target_offset)};
    return copy_array(box, bytes, NULL, true);
}
