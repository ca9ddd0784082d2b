/* cuMemCreate and the references that keep its memory alive.
 *
 * Physical memory goes back only when its handle is released *and* nothing maps it any more. Releasing right
 * after mapping is good practice in CUDA's own samples. So handles carry references here as they do in the
 * driver. An imported handle of memory that no process of this container exported is charged at the import,
 * whether the program maps it or not.
 */
#include "driver/driver.h"
#include "memory/charge.h"
#include "memory/current.h"
#include "memory/exports.h"
#include "memory/ledger.h"
#include "memory/release.h"

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
    struct plimsoll_charge charge;
    if (!plimsoll_begin(&charge, "cuMemCreate"))
        return charge.refusal ? charge.refusal : REAL(cuMemCreate)(handle, size, prop, flags);
    int gpu = prop ? plimsoll_gpu_of_location(&prop->location) : GPU_NONE;
    plimsoll_context_seen(plimsoll_current_context());
    if (plimsoll_reserve(&charge, gpu, size))
        return charge.refusal;
    CUresult result = REAL(cuMemCreate)(handle, size, prop, flags);
    return plimsoll_commit(&charge, result, HELD_HANDLE, result == CUDA_SUCCESS ? *handle : 0, 0);
}

static bool is_known(CUmemGenericAllocationHandle handle) {
    struct plimsoll_holding known;
    return plimsoll_holdings_get(&plimsoll.holdings, HELD_HANDLE, handle, &known);
}

/* The reference is added before the call, because another thread may release the handle right after it. */
CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    bool counts = is_known(handle);
    if (counts)
        plimsoll_refer(handle, 1);
    CUresult result = REAL(cuMemMap)(ptr, size, offset, handle, flags);
    if (counts && result == CUDA_SUCCESS)
        plimsoll_holdings_put(
            &plimsoll.holdings,
            (struct plimsoll_holding){
                .key = ptr, .bytes = size, .with = handle, .gpu = GPU_NONE, .kind = HELD_MAPPING});
    else if (counts)
        plimsoll_refer(handle, -1);
    return result;
}

/* A range unmapped at once may hold several mappings, mostly one behind the other. Unknown mappings may lie
 * before or between them. */
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    CUresult result = REAL(cuMemUnmap)(ptr, size);
    struct plimsoll_holding mapping;
    CUdeviceptr at = ptr;
    if (result != CUDA_SUCCESS)
        return result;
    while (at - ptr < size && plimsoll_holdings_take(&plimsoll.holdings, HELD_MAPPING, at, &mapping)) {
        plimsoll_give_back(&mapping);
        at += mapping.bytes;
    }
    if (at - ptr < size)
        plimsoll_holdings_sweep_mappings(&plimsoll.holdings, at, ptr + size, plimsoll_give_back);
    return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    CUresult result = REAL(cuMemRetainAllocationHandle)(handle, addr);
    if (result == CUDA_SUCCESS)
        plimsoll_refer(*handle, 1);
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
        plimsoll_refer(handle, 1);
    return result;
}

/* --- between processes -----------------------------------------------------------------------------------
 */

#define FABRIC_BYTES 64 /* CUmemFabricHandle */

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags) {
    CUresult result = REAL(cuMemExportToShareableHandle)(shareableHandle, handle, handleType, flags);
    if (result != CUDA_SUCCESS || plimsoll_depth > 0 || !plimsoll_is_attached())
        return result;
    if (handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        plimsoll_exported_file(HELD_HANDLE, handle, *(const int *)shareableHandle);
    else if (handleType == CU_MEM_HANDLE_TYPE_FABRIC)
        plimsoll_exported(HELD_HANDLE, handle, plimsoll_key_of_bytes(shareableHandle, FABRIC_BYTES));
    return result;
}

static uint64_t key_of(void *handle, CUmemAllocationHandleType type) {
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return plimsoll_key_of_file((int)(intptr_t)handle);
    return type == CU_MEM_HANDLE_TYPE_FABRIC && handle ? plimsoll_key_of_bytes(handle, FABRIC_BYTES) : 0;
}

/* A driver may answer with a handle that this process has already: then that handle has one more
 * reference. */
static CUresult after_import(struct plimsoll_charge *charge, uint64_t key, uint16_t piece,
                             CUmemGenericAllocationHandle handle) {
    struct plimsoll_holding imported = {.key = handle,
                                        .references = 1,
                                        .gpu = GPU_NONE,
                                        .kind = HELD_HANDLE,
                                        .sharing = SHARED_IMPORTED,
                                        .piece = piece};
    if (is_known(handle)) {
        plimsoll_refer(handle, 1);
        plimsoll_give_back(&imported);
        return CUDA_SUCCESS;
    }
    if (!piece && plimsoll_reserve_foreign(charge, handle) != CUDA_SUCCESS) {
        REAL(cuMemRelease)(handle);
        return charge->refusal;
    }
    if (!piece) {
        imported.gpu = (int16_t)charge->gpu;
        imported.bytes = charge->bytes;
    }
    plimsoll_remember(imported);
    if (!piece)
        plimsoll_exported(HELD_HANDLE, handle, key);
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType) {
    struct plimsoll_charge charge;
    if (!plimsoll_begin(&charge, "cuMemImportFromShareableHandle"))
        return charge.refusal ? charge.refusal
                              : REAL(cuMemImportFromShareableHandle)(handle, osHandle, shHandleType);
    uint64_t key = key_of(osHandle, shHandleType);
    uint16_t piece = plimsoll_import_begin(key);
    plimsoll_depth++;
    CUresult result =
        plimsoll_leave_hook(REAL(cuMemImportFromShareableHandle)(handle, osHandle, shHandleType));
    if (result == CUDA_SUCCESS)
        return after_import(&charge, key, piece, *handle);
    plimsoll_give_back(&(struct plimsoll_holding){
        .gpu = GPU_NONE, .kind = HELD_HANDLE, .sharing = SHARED_IMPORTED, .piece = piece});
    return result;
}

/* --- in arrays -------------------------------------------------------------------------------------------
 */

static uint64_t stirred(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
    return hash ^ (hash >> 32);
}

/* A place in an array as 64 bits. A mapping is normally undone under the numbers under which it was made. If
 * only a part is undone, or several at once, the reference stays until the array is destroyed. */
static uint64_t place_in_array(const CUarrayMapInfo *info) {
    uint64_t hash = stirred((uintptr_t)info->resource.array, (uint64_t)info->subresourceType);
    if (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
        hash = stirred(hash, info->subresource.miptail.layer);
        hash = stirred(hash, info->subresource.miptail.offset);
        return stirred(hash, info->subresource.miptail.size);
    }
    hash = stirred(hash,
                   (uint64_t)info->subresource.sparseLevel.level << 32 | info->subresource.sparseLevel.layer);
    hash = stirred(hash, (uint64_t)info->subresource.sparseLevel.offsetX << 32 |
                             info->subresource.sparseLevel.offsetY);
    hash = stirred(hash, (uint64_t)info->subresource.sparseLevel.offsetZ << 32 |
                             info->subresource.sparseLevel.extentWidth);
    return stirred(hash, (uint64_t)info->subresource.sparseLevel.extentHeight << 32 |
                             info->subresource.sparseLevel.extentDepth);
}

static bool maps_known(const CUarrayMapInfo *info) {
    return info->memOperationType == CU_MEM_OPERATION_TYPE_MAP && is_known(info->memHandle.memHandle);
}

static void refer_all(const CUarrayMapInfo *list, unsigned count, int change) {
    for (unsigned i = 0; list && i < count; i++)
        if (maps_known(&list[i]))
            plimsoll_refer(list[i].memHandle.memHandle, change);
}

/* A new mapping replaces what was mapped at that place. */
static void remember_place(const CUarrayMapInfo *info) {
    struct plimsoll_holding before;
    uint64_t place = place_in_array(info);
    if (plimsoll_holdings_take(&plimsoll.holdings, HELD_TILES, place, &before))
        plimsoll_give_back(&before);
    if (maps_known(info))
        plimsoll_holdings_put(&plimsoll.holdings,
                              (struct plimsoll_holding){.key = place,
                                                        .bytes = info->memHandle.memHandle,
                                                        .with = (uintptr_t)info->resource.array,
                                                        .gpu = GPU_NONE,
                                                        .kind = HELD_TILES});
}

static CUresult after_map_array(CUresult result, const CUarrayMapInfo *list, unsigned count) {
    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++)
        remember_place(&list[i]);
    if (result != CUDA_SUCCESS)
        refer_all(list, count, -1);
    return result;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream) {
    refer_all(mapInfoList, count, 1);
    return after_map_array(REAL(cuMemMapArrayAsync)(mapInfoList, count, hStream), mapInfoList, count);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream) {
    refer_all(mapInfoList, count, 1);
    return after_map_array(REAL(cuMemMapArrayAsync_ptsz)(mapInfoList, count, hStream), mapInfoList, count);
}
