/* cuMemCreate and what keeps its memory alive.
 *
 * Physical memory goes back only when its handle is released *and* nothing maps it any more: releasing right
 * after mapping is good practice in CUDA's own samples. So handles carry references as the driver's do.
 */
#include "charge.h"
#include "driver.h"

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
    struct plimsoll_charge charge;
    if (!plimsoll_begin(&charge, "cuMemCreate"))
        return charge.refusal ? charge.refusal : REAL(cuMemCreate)(handle, size, prop, flags);
    int gpu = prop ? plimsoll_gpu_of_location(&prop->location) : GPU_NONE;
    if (plimsoll_reserve(&charge, gpu, size))
        return charge.refusal;
    CUresult result = REAL(cuMemCreate)(handle, size, prop, flags);
    return plimsoll_commit(&charge, result, HELD_HANDLE, result == CUDA_SUCCESS ? *handle : 0, 0);
}

static void refer(CUmemGenericAllocationHandle handle, int change) {
    struct plimsoll_holding holding;
    if (plimsoll_holdings_refer(&plimsoll.holdings, HELD_HANDLE, handle, change, &holding))
        plimsoll_give_back(&holding);
}

/* Imported memory's too is remembered, as it may lie between this process's own when that is unmapped. */
CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    CUresult result = REAL(cuMemMap)(ptr, size, offset, handle, flags);
    struct plimsoll_holding known;
    if (result != CUDA_SUCCESS)
        return result;
    bool is_known = plimsoll_holdings_get(&plimsoll.holdings, HELD_HANDLE, handle, &known);
    if (is_known)
        refer(handle, 1);
    plimsoll_holdings_put(
        &plimsoll.holdings,
        (struct plimsoll_holding){
            .key = ptr, .bytes = size, .with = is_known ? handle : 0, .gpu = GPU_NONE, .kind = HELD_MAPPING});
    return result;
}

/* A range unmapped at once may hold several mappings, one behind the other. */
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    CUresult result = REAL(cuMemUnmap)(ptr, size);
    struct plimsoll_holding mapping;
    CUdeviceptr at = ptr;
    while (result == CUDA_SUCCESS && at - ptr < size &&
           plimsoll_holdings_take(&plimsoll.holdings, HELD_MAPPING, at, &mapping)) {
        refer(mapping.with, -1);
        at += mapping.bytes;
    }
    return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    CUresult result = REAL(cuMemRetainAllocationHandle)(handle, addr);
    if (result == CUDA_SUCCESS)
        refer(*handle, 1);
    return result;
}

/* The reference goes before the call, for the reason given at PLIMSOLL_FREE. */
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct plimsoll_holding holding = {.kind = 0};
    bool is_last = plimsoll_holdings_refer(&plimsoll.holdings, HELD_HANDLE, handle, -1, &holding);
    CUresult result = REAL(cuMemRelease)(handle);
    if (result == CUDA_SUCCESS) {
        if (is_last)
            plimsoll_give_back(&holding);
        return result;
    }
    holding.references = 1;
    if (is_last)
        plimsoll_holdings_put(&plimsoll.holdings, holding);
    else if (holding.kind == HELD_HANDLE)
        refer(handle, 1);
    return result;
}
