/* What the program is told about memory: its own line instead of the card, as if the card were that small.
 * Totals never exceed the real card's; free is never negative, also when a line sank below what is used.
 */
#include "attach.h"
#include "charge.h"
#include "driver.h"
#include "ledger.h"

struct view {
    uint64_t total_bytes;
    uint64_t used_bytes;
};

/* False: not under Plimsoll, or the container owns its GPUs, so the real numbers stand. */
static bool view_of(int gpu, uint64_t real_total_bytes, struct view *view) {
    if (gpu == GPU_NONE)
        return false;
    plimsoll_refresh();
    if (plimsoll_is_whole())
        return false;
    *view = (struct view){0};
    if (gpu == GPU_UNLISTED)
        return true;
    uint64_t line_bytes = __atomic_load_n(&plimsoll.gpus[gpu].line_bytes, __ATOMIC_RELAXED);
    uint64_t used_bytes = plimsoll_ledger_used(plimsoll.counts, (unsigned)gpu);
    view->total_bytes = line_bytes < real_total_bytes ? line_bytes : real_total_bytes;
    view->used_bytes = used_bytes < view->total_bytes ? used_bytes : view->total_bytes;
    return true;
}

/* CUDA's views come after cuInit, which waited for the limits; NVML's may come from a program that only
 * looks, and are told to come back. */
static bool is_limited(void) {
    return plimsoll_depth == 0 && plimsoll_map_files() >= STANDING_MAPPED;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    struct view view;
    CUresult result = REAL(cuMemGetInfo_v2)(free, total);
    if (result == CUDA_SUCCESS && is_limited() && view_of(plimsoll_gpu_of_current(), *total, &view)) {
        *total = view.total_bytes;
        *free = view.total_bytes - view.used_bytes;
    }
    return result;
}

/* The first versions count in 32 bits: the driver itself gives up past 4 GiB. */
static unsigned clamped(uint64_t bytes) {
    return bytes > UINT32_MAX ? UINT32_MAX : (unsigned)bytes;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total) {
    struct view view;
    CUresult result = REAL(cuMemGetInfo)(free, total);
    if (result == CUDA_SUCCESS && is_limited() && view_of(plimsoll_gpu_of_current(), *total, &view)) {
        *total = clamped(view.total_bytes);
        *free = clamped(view.total_bytes - view.used_bytes);
    }
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    struct view view;
    CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, dev);
    if (result == CUDA_SUCCESS && is_limited() && view_of(plimsoll_gpu_of_device(dev), *bytes, &view))
        *bytes = view.total_bytes;
    return result;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev) {
    struct view view;
    CUresult result = REAL(cuDeviceTotalMem)(bytes, dev);
    if (result == CUDA_SUCCESS && is_limited() && view_of(plimsoll_gpu_of_device(dev), *bytes, &view))
        *bytes = clamped(view.total_bytes);
    return result;
}

/* --- NVML ------------------------------------------------------------------------------------------------
 */

/* NVML knows cards by handle; the limits know them by UUID. */
static int gpu_of_handle(nvmlDevice_t device) {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    if (CALLED(nvmlDeviceGetUUID)(device, uuid, sizeof(uuid)) != NVML_SUCCESS)
        return GPU_UNLISTED;
    return plimsoll_gpu_of_uuid_text(uuid);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    struct view view;
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    if (result != NVML_SUCCESS || plimsoll_depth > 0)
        return result;
    if (plimsoll_map_files() == STANDING_UNKNOWN)
        return NVML_ERROR_NOT_READY;
    if (is_limited() && view_of(gpu_of_handle(device), memory->total, &view)) {
        memory->total = view.total_bytes;
        memory->used = view.used_bytes;
        memory->free = view.total_bytes - view.used_bytes;
    }
    return result;
}

/* The second version's parts sum up to its total: what the driver keeps for itself is not this container's.
 */
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    struct view view;
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    if (result != NVML_SUCCESS || plimsoll_depth > 0)
        return result;
    if (plimsoll_map_files() == STANDING_UNKNOWN)
        return NVML_ERROR_NOT_READY;
    if (is_limited() && view_of(gpu_of_handle(device), memory->total, &view)) {
        memory->total = view.total_bytes;
        memory->reserved = 0;
        memory->used = view.used_bytes;
        memory->free = view.total_bytes - view.used_bytes;
    }
    return result;
}
