/* CUDA arrays: texture memory, whose true layout the driver does not reveal. The charge is the sum of their
 * elements in the driver's blocks, a lower bound. Padding between rows shows in NVML alone. */
#include "driver/driver.h"
#include "memory/bytes.h"
#include "memory/charge.h"
#include "memory/current.h"
#include "memory/release.h"

/* Sparse and deferred arrays are made without memory and get it from cuMemCreate, which is counted. The
 * headers of CUDA 11 lack the second name. */
#define WITHOUT_MEMORY (0x40u /* CUDA_ARRAY3D_SPARSE */ | 0x80u /* CUDA_ARRAY3D_DEFERRED_MAPPING */)

static uint64_t at_least_one(uint64_t extent) {
    return extent ? extent : 1;
}

/* The bits of one element with all its channels. Block-compressed formats pack 4x4 elements in 8 or 16
 * bytes. */
static uint64_t element_bits(CUarray_format format, unsigned channels) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 8u * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 32u * channels;
    default:
        break;
    }
    int value = (int)format;
    if ((value >= 0x91 && value <= 0x92) || value == 0x97 || value == 0x98)
        return 4; /* BC1, BC4 */
    if (value > 0x92 && value <= 0x9e)
        return 8; /* BC2, BC3, BC5, BC6H, BC7 */
    if (value == CU_AD_FORMAT_NV12)
        return 12;
    bool is_8_bit = (value >= 0xc0 && value <= 0xc2) || (value >= 0xc6 && value <= 0xc8);
    return (is_8_bit ? 8u : 16u) * channels; /* half, 16-bit integers, and any later format */
}

static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array) {
    if (!array || array->Flags & WITHOUT_MEMORY)
        return 0;
    uint64_t elements = plimsoll_times(
        plimsoll_times(at_least_one(array->Width), at_least_one(array->Height)), at_least_one(array->Depth));
    uint64_t bits = plimsoll_times(elements, element_bits(array->Format, array->NumChannels));
    return bits / 8 + (bits % 8 != 0);
}

static uint64_t halved(uint64_t extent) {
    return extent > 1 ? extent / 2 : extent;
}

/* Each level halves every extent; layers of a layered array stay. 32 levels reach 1 from any extent. */
static uint64_t mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *base, unsigned levels) {
    uint64_t sum = 0;
    if (!base)
        return 0;
    CUDA_ARRAY3D_DESCRIPTOR level = *base;
    for (unsigned i = 0; i < levels && i < 32; i++) {
        sum = plimsoll_plus(sum, array_bytes(&level));
        level.Width = halved(level.Width);
        level.Height = halved(level.Height);
        level.Depth = level.Flags & CUDA_ARRAY3D_LAYERED ? level.Depth : halved(level.Depth);
        if (level.Width <= 1 && level.Height <= 1)
            break;
    }
    return sum;
}

/* No driver shows whether an array still exists. So what is remembered must belong to the present context. */
static int gpu_of(uint64_t context) {
    int gpu = plimsoll_gpu_of_current_context(context);
    if (gpu >= 0)
        plimsoll_contexts_check(gpu);
    return gpu;
}

#define CREATE_ARRAY(symbol, handle, held, bytes, ...)                                                       \
    do {                                                                                                     \
        struct plimsoll_charge charge;                                                                       \
        if (!plimsoll_begin(&charge, #symbol))                                                               \
            return charge.refusal ? charge.refusal : REAL(symbol)(__VA_ARGS__);                              \
        uint64_t context = plimsoll_current_context();                                                       \
        if (plimsoll_reserve_blocks(&charge, gpu_of(context), bytes))                                        \
            return charge.refusal;                                                                           \
        CUresult result = REAL(symbol)(__VA_ARGS__);                                                         \
        return plimsoll_commit(&charge, result, held, result == CUDA_SUCCESS ? (uintptr_t)*(handle) : 0,     \
                               context);                                                                     \
    } while (0)

#define AS_3D(array, depth, flags)                                                                           \
    (array) ? &(CUDA_ARRAY3D_DESCRIPTOR){(array)->Width,  (array)->Height,      depth,                       \
                                         (array)->Format, (array)->NumChannels, flags}                       \
            : NULL

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray) {
    uint64_t bytes = array_bytes(AS_3D(pAllocateArray, 0, 0));
    CREATE_ARRAY(cuArrayCreate_v2, pHandle, HELD_ARRAY, bytes, pHandle, pAllocateArray);
}

CUresult cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray) {
    uint64_t bytes = array_bytes(AS_3D(pAllocateArray, 0, 0));
    CREATE_ARRAY(cuArrayCreate, pHandle, HELD_ARRAY, bytes, pHandle, pAllocateArray);
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray) {
    uint64_t bytes = array_bytes(pAllocateArray);
    CREATE_ARRAY(cuArray3DCreate_v2, pHandle, HELD_ARRAY, bytes, pHandle, pAllocateArray);
}

CUresult cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray) {
    uint64_t bytes = array_bytes(AS_3D(pAllocateArray, pAllocateArray->Depth, pAllocateArray->Flags));
    CREATE_ARRAY(cuArray3DCreate, pHandle, HELD_ARRAY, bytes, pHandle, pAllocateArray);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
    uint64_t bytes = mipmap_bytes(pMipmappedArrayDesc, numMipmapLevels);
    CREATE_ARRAY(cuMipmappedArrayCreate, pHandle, HELD_MIPMAP, bytes, pHandle, pMipmappedArrayDesc,
                 numMipmapLevels);
}

CUresult cuArrayDestroy(CUarray hArray) {
    PLIMSOLL_FREE(cuArrayDestroy, HELD_ARRAY, (uintptr_t)hArray, hArray);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
    PLIMSOLL_FREE(cuMipmappedArrayDestroy, HELD_MIPMAP, (uintptr_t)hMipmappedArray, hMipmappedArray);
}
