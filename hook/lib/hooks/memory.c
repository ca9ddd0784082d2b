/* cuMemAlloc and its kin, and the functions that free memory of any origin.
 *
 * `with` is the context that memory dies with: the current one for cuMemAlloc, pitch and managed memory.
 */
#include "driver/driver.h"
#include "memory/bytes.h"
#include "memory/charge.h"
#include "memory/current.h"
#include "memory/release.h"

/* The three steps, for memory in the current context whose size is known before the call. */
#define ALLOCATE_HERE(symbol, pointer, bytes, ...)                                                           \
    do {                                                                                                     \
        struct plimsoll_charge charge;                                                                       \
        if (!plimsoll_begin(&charge, #symbol))                                                               \
            return charge.refusal ? charge.refusal : REAL(symbol)(__VA_ARGS__);                              \
        uint64_t context = plimsoll_current_context();                                                       \
        if (plimsoll_reserve_blocks(&charge, plimsoll_gpu_of_current_context(context), bytes))               \
            return charge.refusal;                                                                           \
        CUresult result = REAL(symbol)(__VA_ARGS__);                                                         \
        return plimsoll_commit(&charge, result, HELD_MEMORY, result == CUDA_SUCCESS ? *(pointer) : 0,        \
                               context);                                                                     \
    } while (0)

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
    ALLOCATE_HERE(cuMemAlloc_v2, dptr, bytesize, dptr, bytesize);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize) {
    ALLOCATE_HERE(cuMemAlloc, dptr, bytesize, dptr, bytesize);
}

/* Managed memory moves between host and GPU. All of it may come to lie on the GPU, so all of it counts. */
CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
    ALLOCATE_HERE(cuMemAllocManaged, dptr, bytesize, dptr, bytesize, flags);
}

/* --- pitch: only the driver's answer shows how wide a row became ---------------------------------------- */

/* Every NVIDIA GPU so far widens rows to a multiple of this. A wrong guess is corrected after the call. */
#define PITCH_GUESS_BYTES 512u

static uint64_t guessed_area(uint64_t width, uint64_t height) {
    return plimsoll_times(plimsoll_rounded(width, PITCH_GUESS_BYTES), height);
}

/* A row wider than guessed may pass the line only now: then the memory goes back at once. */
static CUresult settle_pitch(struct plimsoll_charge *charge, CUresult result, CUdeviceptr pointer,
                             size_t pitch, size_t height, uint64_t context) {
    bool fits = result != CUDA_SUCCESS || plimsoll_adjust_blocks(charge, plimsoll_times(pitch, height));
    if (!fits) {
        REAL(cuMemFree_v2)(pointer);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return plimsoll_commit(charge, result, HELD_MEMORY, pointer, context);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
    struct plimsoll_charge charge;
    if (!plimsoll_begin(&charge, "cuMemAllocPitch_v2"))
        return charge.refusal
                   ? charge.refusal
                   : REAL(cuMemAllocPitch_v2)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    uint64_t context = plimsoll_current_context();
    if (plimsoll_reserve_blocks(&charge, plimsoll_gpu_of_current_context(context),
                                guessed_area(WidthInBytes, Height)))
        return charge.refusal;
    CUresult result = REAL(cuMemAllocPitch_v2)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    bool is_made = result == CUDA_SUCCESS;
    return settle_pitch(&charge, result, is_made ? *dptr : 0, is_made ? *pPitch : 0, Height, context);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
                         unsigned int Height, unsigned int ElementSizeBytes) {
    struct plimsoll_charge charge;
    if (!plimsoll_begin(&charge, "cuMemAllocPitch"))
        return charge.refusal ? charge.refusal
                              : REAL(cuMemAllocPitch)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    uint64_t context = plimsoll_current_context();
    if (plimsoll_reserve_blocks(&charge, plimsoll_gpu_of_current_context(context),
                                guessed_area(WidthInBytes, Height)))
        return charge.refusal;
    CUresult result = REAL(cuMemAllocPitch)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    bool is_made = result == CUDA_SUCCESS;
    return settle_pitch(&charge, result, is_made ? *dptr : 0, is_made ? *pPitch : 0, Height, context);
}

/* --- freeing ---------------------------------------------------------------------------------------------
 */

CUresult cuMemFree_v2(CUdeviceptr dptr) {
    PLIMSOLL_FREE(cuMemFree_v2, HELD_MEMORY, dptr, dptr);
}

CUresult cuMemFree(CUdeviceptr_v1 dptr) {
    PLIMSOLL_FREE(cuMemFree, HELD_MEMORY, dptr, dptr);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    PLIMSOLL_FREE(cuMemFreeAsync, HELD_MEMORY, dptr, dptr, hStream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
    PLIMSOLL_FREE(cuMemFreeAsync_ptsz, HELD_MEMORY, dptr, dptr, hStream);
}
