/* A driver that has what the emulator's lacks: functions of CUDA 13, of cards with engines of their own, and
 * the boxes of CUDA 2. Everything else comes from the emulator, which it is linked to under another name.
 *
 * Each hands its work over as a copy through the emulator's functions, and so comes by the hooks once more
 * from inside, as NVIDIA's driver may.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#define COMMON(from)                                                                                         \
    .srcXInBytes = (from)->srcXInBytes, .srcY = (from)->srcY, .srcMemoryType = (from)->srcMemoryType,        \
    .srcHost = (from)->srcHost, .srcDevice = (from)->srcDevice, .srcArray = (from)->srcArray,                \
    .srcPitch = (from)->srcPitch, .dstXInBytes = (from)->dstXInBytes, .dstY = (from)->dstY,                  \
    .dstMemoryType = (from)->dstMemoryType, .dstHost = (from)->dstHost, .dstDevice = (from)->dstDevice,      \
    .dstArray = (from)->dstArray, .dstPitch = (from)->dstPitch, .WidthInBytes = (from)->WidthInBytes,        \
    .Height = (from)->Height

static CUDA_MEMCPY2D flat(const CUDA_MEMCPY2D_v1 *from) {
    return (CUDA_MEMCPY2D){COMMON(from)};
}

static CUDA_MEMCPY3D box(const CUDA_MEMCPY3D_v1 *from) {
    return (CUDA_MEMCPY3D){COMMON(from),       .srcZ = from->srcZ,           .srcHeight = from->srcHeight,
                           .dstZ = from->dstZ, .dstHeight = from->dstHeight, .Depth = from->Depth};
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1 *copy) {
    CUDA_MEMCPY2D wide = flat(copy);
    return cuMemcpy2D_v2(&wide);
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1 *copy) {
    CUDA_MEMCPY2D wide = flat(copy);
    return cuMemcpy2DUnaligned_v2(&wide);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *copy, CUstream stream) {
    CUDA_MEMCPY2D wide = flat(copy);
    return cuMemcpy2DAsync_v2(&wide, stream);
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1 *copy) {
    CUDA_MEMCPY3D wide = box(copy);
    return cuMemcpy3D_v2(&wide);
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *copy, CUstream stream) {
    CUDA_MEMCPY3D wide = box(copy);
    return cuMemcpy3DAsync_v2(&wide, stream);
}

CUresult cuCtxSynchronize_v2(CUcontext context);
CUresult cuCtxSynchronize_v2(CUcontext context) {
    CUcontext popped;
    CUresult result = cuCtxPushCurrent_v2(context);
    if (result)
        return result;
    result = cuCtxSynchronize();
    cuCtxPopCurrent_v2(&popped);
    return result;
}

typedef struct {
    int type;
    union {
        struct {
            CUdeviceptr address;
            CUmemLocation hint;
        } pointer;
        struct {
            unsigned long long id, offset;
        } endpoint;
    } at;
} fabric_operand;

typedef struct {
    fabric_operand source, target;
    size_t size;
    unsigned flags;
} fabric_copy;

/* The same for both kinds of default stream. */
#define NEWER(suffix)                                                                                        \
    CUresult cuMemcpyBatchAsync_v2##suffix(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes,        \
                                           size_t count, CUmemcpyAttributes *attributes, size_t *from,       \
                                           size_t number, CUstream stream);                                  \
    CUresult cuMemcpyBatchAsync_v2##suffix(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes,        \
                                           size_t count, CUmemcpyAttributes *attributes, size_t *from,       \
                                           size_t number, CUstream stream) {                                 \
        return cuMemcpyBatchAsync##suffix(targets, sources, sizes, count, attributes, from, number, NULL,    \
                                          stream);                                                           \
    }                                                                                                        \
    CUresult cuMemcpy3DBatchAsync_v2##suffix(size_t count, CUDA_MEMCPY3D_BATCH_OP *list,                     \
                                             unsigned long long flags, CUstream stream);                     \
    CUresult cuMemcpy3DBatchAsync_v2##suffix(size_t count, CUDA_MEMCPY3D_BATCH_OP *list,                     \
                                             unsigned long long flags, CUstream stream) {                    \
        return cuMemcpy3DBatchAsync##suffix(count, list, NULL, flags, stream);                               \
    }                                                                                                        \
    CUresult cuMemcpyWithAttributesAsync##suffix(CUdeviceptr target, CUdeviceptr source, size_t size,        \
                                                 CUmemcpyAttributes *attributes, CUstream stream);           \
    CUresult cuMemcpyWithAttributesAsync##suffix(CUdeviceptr target, CUdeviceptr source, size_t size,        \
                                                 CUmemcpyAttributes *attributes, CUstream stream) {          \
        (void)attributes;                                                                                    \
        return cuMemcpyAsync##suffix(target, source, size, stream);                                          \
    }                                                                                                        \
    CUresult cuMemcpy3DWithAttributesAsync##suffix(CUDA_MEMCPY3D_BATCH_OP *operation,                        \
                                                   unsigned long long flags, CUstream stream);               \
    CUresult cuMemcpy3DWithAttributesAsync##suffix(CUDA_MEMCPY3D_BATCH_OP *operation,                        \
                                                   unsigned long long flags, CUstream stream) {              \
        return cuMemcpy3DBatchAsync##suffix(1, operation, NULL, flags, stream);                              \
    }                                                                                                        \
    CUresult cuMemBatchDecompressAsync##suffix(CUmemDecompressParams *list, size_t count, unsigned flags,    \
                                               size_t *failed, CUstream stream) {                            \
        CUresult result = flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;                                   \
        for (*failed = 0; result == CUDA_SUCCESS && *failed < count; ++*failed)                              \
            result = cuMemcpyAsync##suffix((CUdeviceptr)list[*failed].dst, (CUdeviceptr)list[*failed].src,   \
                                           list[*failed].srcNumBytes, stream);                               \
        return result;                                                                                       \
    }                                                                                                        \
    CUresult cuFabricCpyBatchAsync##suffix(size_t count, fabric_copy *list, unsigned long long flags,        \
                                           CUstream stream);                                                 \
    CUresult cuFabricCpyBatchAsync##suffix(size_t count, fabric_copy *list, unsigned long long flags,        \
                                           CUstream stream) {                                                \
        CUresult result = flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;                                   \
        for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)                                         \
            result = cuMemcpyAsync##suffix(list[i].target.at.pointer.address,                                \
                                           list[i].source.at.pointer.address, list[i].size, stream);         \
        return result;                                                                                       \
    }

NEWER()
NEWER(_ptsz)
