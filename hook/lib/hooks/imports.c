/* Memory that crosses between processes: by IPC handle, from a pool, as external memory. Handles of
 * cuMemCreate cross in virtual.c.
 *
 * An import of memory that a process of this container exported, or imported before, and still holds, costs
 * nothing. Any other import is charged as an allocation is: its exporter may be gone at any time, and then
 * the driver holds the memory for the importer alone.
 */
#include "driver/driver.h"
#include "memory/charge.h"
#include "memory/current.h"
#include "memory/exports.h"
#include "memory/ledger.h"
#include "memory/release.h"

static bool is_counting(void) {
    return plimsoll_depth == 0 && plimsoll_is_attached();
}

/* --- exports ---------------------------------------------------------------------------------------------
 */

/* A handle names the allocation around the address. */
static CUdeviceptr start_of(CUdeviceptr address) {
    CUdeviceptr start = 0;
    CUresult result = CALLED(cuPointerGetAttribute)(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
    return result == CUDA_SUCCESS ? start : address;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
    CUresult result = REAL(cuIpcGetMemHandle)(pHandle, dptr);
    if (result == CUDA_SUCCESS && is_counting())
        plimsoll_exported(HELD_MEMORY, start_of(dptr), plimsoll_key_of_bytes(pHandle, sizeof(*pHandle)));
    return result;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr) {
    CUresult result = REAL(cuMemPoolExportPointer)(shareData_out, ptr);
    if (result == CUDA_SUCCESS && is_counting())
        plimsoll_exported(HELD_MEMORY, ptr, plimsoll_key_of_bytes(shareData_out, sizeof(*shareData_out)));
    return result;
}

/* --- addresses -------------------------------------------------------------------------------------------
 */

/* Reserves an import that no piece counts. On a refusal the caller ends the import. */
static bool is_reserved(struct plimsoll_charge *charge, int gpu, uint64_t bytes) {
    if (plimsoll_reserve(charge, gpu, bytes) != CUDA_SUCCESS)
        return false;
    plimsoll_depth--;
    return true;
}

/* Finds how much memory lies behind an imported address, and where. */
static bool is_reserved_at(struct plimsoll_charge *charge, CUdeviceptr address) {
    size_t bytes = 0;
    int device = -1;
    bool is_known =
        CALLED(cuPointerGetAttribute)(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) == CUDA_SUCCESS &&
        CALLED(cuPointerGetAttribute)(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == CUDA_SUCCESS;
    return !is_known || is_reserved(charge, plimsoll_gpu_of_device(device), bytes);
}

/* An address that is opened again has one more reference, in the driver as here. */
static CUresult after_import(struct plimsoll_charge *charge, uint64_t key, uint16_t piece,
                             CUdeviceptr address, CUresult (*undo)(CUdeviceptr)) {
    struct plimsoll_holding known, imported = {.key = address,
                                               .with = plimsoll_current_context(),
                                               .references = 1,
                                               .gpu = GPU_NONE,
                                               .kind = HELD_MEMORY,
                                               .sharing = SHARED_IMPORTED,
                                               .piece = piece};
    if (plimsoll_holdings_get(&plimsoll.holdings, HELD_MEMORY, address, &known) &&
        (known.sharing == SHARED_IMPORTED || known.sharing == SHARED_EXPORTED)) {
        plimsoll_holdings_refer(&plimsoll.holdings, HELD_MEMORY, address, 1, &known);
        plimsoll_give_back(&imported);
        return CUDA_SUCCESS;
    }
    if (!piece && !is_reserved_at(charge, address)) {
        plimsoll_depth++;
        undo(address);
        return plimsoll_leave_hook(CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (!piece) {
        imported.gpu = (int16_t)charge->gpu;
        imported.bytes = charge->bytes;
    }
    plimsoll_remember(imported);
    if (!piece)
        plimsoll_exported(HELD_MEMORY, address, key);
    return CUDA_SUCCESS;
}

#define IMPORT_ADDRESS(symbol, pointer, data, undo, ...)                                                     \
    do {                                                                                                     \
        struct plimsoll_charge charge;                                                                       \
        if (!plimsoll_begin(&charge, #symbol))                                                               \
            return charge.refusal ? charge.refusal : REAL(symbol)(__VA_ARGS__);                              \
        uint64_t key = (data) ? plimsoll_key_of_bytes(data, sizeof(*(data))) : 0;                            \
        uint16_t piece = plimsoll_import_begin(key);                                                         \
        plimsoll_depth++;                                                                                    \
        CUresult result = plimsoll_leave_hook(REAL(symbol)(__VA_ARGS__));                                    \
        if (result == CUDA_SUCCESS)                                                                          \
            return after_import(&charge, key, piece, *(pointer), undo);                                      \
        plimsoll_give_back(&(struct plimsoll_holding){                                                       \
            .gpu = GPU_NONE, .kind = HELD_MEMORY, .sharing = SHARED_IMPORTED, .piece = piece});              \
        return result;                                                                                       \
    } while (0)

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
    IMPORT_ADDRESS(cuIpcOpenMemHandle_v2, pdptr, &handle, REAL(cuIpcCloseMemHandle), pdptr, handle, Flags);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
    IMPORT_ADDRESS(cuIpcOpenMemHandle, pdptr, &handle, REAL(cuIpcCloseMemHandle), pdptr, handle, Flags);
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData) {
    IMPORT_ADDRESS(cuMemPoolImportPointer, ptr_out, shareData, REAL(cuMemFree_v2), ptr_out, pool, shareData);
}

/* The reference goes before the call, for the reason given at PLIMSOLL_FREE. */
CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
    struct plimsoll_holding holding = {.kind = 0};
    bool is_last =
        is_counting() && plimsoll_holdings_refer(&plimsoll.holdings, HELD_MEMORY, dptr, -1, &holding);
    plimsoll_depth++;
    CUresult result = plimsoll_leave_hook(REAL(cuIpcCloseMemHandle)(dptr));
    holding.references = 1;
    if (is_last)
        return plimsoll_settle_free(result, &holding);
    if (result != CUDA_SUCCESS && holding.kind)
        plimsoll_holdings_refer(&plimsoll.holdings, HELD_MEMORY, dptr, 1, &holding);
    return result;
}

/* --- external memory: a program destroys it, and may keep what is mapped from it --------------------------
 */

/* The file belongs to the driver after the import. */
static uint64_t key_of(const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *from) {
    return from && from->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
               ? plimsoll_key_of_file(from->handle.fd)
               : 0;
}

/* The program names the size. A descriptor of cuMemCreate's memory shows the true one, which may be more. */
static uint64_t bytes_behind(const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *from) {
    plimsoll_depth++;
    uint64_t bytes =
        from->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD ? plimsoll_bytes_of_file(from->handle.fd) : 0;
    plimsoll_depth--;
    return bytes > from->size ? bytes : from->size;
}

static void remember_external(CUexternalMemory memory, struct plimsoll_holding extent, uint64_t key) {
    extent.key = __atomic_add_fetch(&plimsoll.extents, 1, __ATOMIC_RELAXED);
    plimsoll_remember(extent);
    if (!extent.piece)
        plimsoll_exported(HELD_EXTENT, extent.key, key);
    plimsoll_remember((struct plimsoll_holding){.key = (uintptr_t)memory,
                                                .bytes = extent.key,
                                                .gpu = GPU_NONE,
                                                .kind = HELD_EXTERNAL,
                                                .sharing = SHARED_PART});
}

CUresult cuImportExternalMemory(CUexternalMemory *extMem_out,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc) {
    struct plimsoll_charge charge;
    if (!plimsoll_begin(&charge, "cuImportExternalMemory"))
        return charge.refusal ? charge.refusal : REAL(cuImportExternalMemory)(extMem_out, memHandleDesc);
    uint64_t key = key_of(memHandleDesc);
    struct plimsoll_holding extent = {.references = 1,
                                      .gpu = GPU_NONE,
                                      .kind = HELD_EXTENT,
                                      .sharing = SHARED_IMPORTED,
                                      .piece = plimsoll_import_begin(key)};
    if (!extent.piece && memHandleDesc) {
        if (!is_reserved(&charge, plimsoll_gpu_of_current(), bytes_behind(memHandleDesc)))
            return charge.refusal;
        extent.gpu = (int16_t)charge.gpu;
        extent.bytes = charge.bytes;
    }
    plimsoll_depth++;
    CUresult result = plimsoll_leave_hook(REAL(cuImportExternalMemory)(extMem_out, memHandleDesc));
    if (result == CUDA_SUCCESS)
        remember_external(*extMem_out, extent, key);
    else
        plimsoll_give_back(&extent);
    return result;
}

/* Adds a reference to the memory behind external memory. Returns its number, 0 if it is not known. */
static uint64_t refer_to(CUexternalMemory memory) {
    struct plimsoll_holding known;
    if (!is_counting() ||
        !plimsoll_holdings_get(&plimsoll.holdings, HELD_EXTERNAL, (uintptr_t)memory, &known))
        return 0;
    plimsoll_refer_extent(known.bytes, 1);
    return known.bytes;
}

static CUresult after_mapping(CUresult result, uint64_t extent, enum plimsoll_kind kind, uint64_t key) {
    struct plimsoll_holding part = {.key = key,
                                    .bytes = extent,
                                    .with = plimsoll_current_context(),
                                    .references = 1,
                                    .gpu = GPU_NONE,
                                    .kind = (uint8_t)kind,
                                    .sharing = SHARED_PART};
    if (extent && result == CUDA_SUCCESS)
        plimsoll_remember(part);
    else if (extent)
        plimsoll_give_back(&part);
    return result;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc) {
    uint64_t extent = refer_to(extMem);
    CUresult result = REAL(cuExternalMemoryGetMappedBuffer)(devPtr, extMem, bufferDesc);
    return after_mapping(result, extent, HELD_MEMORY, result == CUDA_SUCCESS ? *devPtr : 0);
}

CUresult
cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *mipmap, CUexternalMemory extMem,
                                        const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *mipmapDesc) {
    uint64_t extent = refer_to(extMem);
    CUresult result = REAL(cuExternalMemoryGetMappedMipmappedArray)(mipmap, extMem, mipmapDesc);
    return after_mapping(result, extent, HELD_MIPMAP, result == CUDA_SUCCESS ? (uintptr_t)*mipmap : 0);
}

CUresult cuDestroyExternalMemory(CUexternalMemory extMem) {
    PLIMSOLL_FREE(cuDestroyExternalMemory, HELD_EXTERNAL, (uintptr_t)extMem, extMem);
}
