/* The memory that the program sees: its own line instead of the card, as if the card were that small. Totals
 * never exceed the real card's. Free memory is never negative, even when a line sank below what is used. */
#include "hooks/views.h"

#include "broker/broker.h"
#include "driver/driver.h"
#include "memory/current.h"
#include "memory/ledger.h"

struct memory {
    uint64_t total_bytes;
    uint64_t used_bytes;
    uint64_t free_bytes;
};

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Free memory is what the program could allocate. If the grant is the whole line, that is no more than the
 * card itself has free: memory outside every line (the driver's, a program's outside Plimsoll) cannot be had.
 * Under overcommit, the grant is only the point from which the library asks the broker, and the card's free
 * memory is what other containers leave at the moment; a request that does not fit waits. A program that
 * sizes its work by this number must not see less than it can get, so there the line alone counts. */
static struct memory memory_of(unsigned gpu, const struct memory *real) {
    const struct plimsoll_gpu *on = &plimsoll.gpus[gpu];
    uint64_t line_bytes = __atomic_load_n(&on->line_bytes, __ATOMIC_RELAXED);
    bool is_overcommitted = __atomic_load_n(&on->granted_bytes, __ATOMIC_RELAXED) < line_bytes;
    struct memory seen = {.total_bytes = least(line_bytes, real->total_bytes)};
    seen.used_bytes = least(plimsoll_used(gpu), seen.total_bytes);
    seen.free_bytes = seen.total_bytes - seen.used_bytes;
    if (!is_overcommitted)
        seen.free_bytes = least(seen.free_bytes, real->free_bytes);
    return seen;
}

/* Replaces the card's figures. False: they stay, because the process is not under Plimsoll or the container
 * owns its GPUs. */
static bool narrow(int gpu, struct memory *real) {
    if (gpu == GPU_NONE)
        return false;
    plimsoll_refresh();
    if (plimsoll_is_whole())
        return false;
    *real = gpu == GPU_UNLISTED ? (struct memory){0} : memory_of((unsigned)gpu, real);
    return true;
}

/* CUDA's views come after cuInit, which waited for the limits. NVML's may come from a program that only
 * reads, and that program is asked to try again. */
static bool is_limited(void) {
    return plimsoll_depth == 0 && plimsoll_map_files() >= ATTACHMENT_MAPPED;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    CUresult result = REAL(cuMemGetInfo_v2)(free, total);
    if (result != CUDA_SUCCESS || !is_limited())
        return result;
    struct memory seen = {.total_bytes = *total, .free_bytes = *free};
    if (narrow(plimsoll_gpu_of_current(), &seen)) {
        *total = seen.total_bytes;
        *free = seen.free_bytes;
    }
    return result;
}

/* The first versions count in 32 bits: the driver itself gives up past 4 GiB. */
static unsigned clamped(uint64_t bytes) {
    return bytes > UINT32_MAX ? UINT32_MAX : (unsigned)bytes;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total) {
    CUresult result = REAL(cuMemGetInfo)(free, total);
    if (result != CUDA_SUCCESS || !is_limited())
        return result;
    struct memory seen = {.total_bytes = *total, .free_bytes = *free};
    if (narrow(plimsoll_gpu_of_current(), &seen)) {
        *total = clamped(seen.total_bytes);
        *free = clamped(seen.free_bytes);
    }
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, dev);
    if (result != CUDA_SUCCESS || !is_limited())
        return result;
    struct memory seen = {.total_bytes = *bytes};
    if (narrow(plimsoll_gpu_of_device(dev), &seen))
        *bytes = seen.total_bytes;
    return result;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev) {
    CUresult result = REAL(cuDeviceTotalMem)(bytes, dev);
    if (result != CUDA_SUCCESS || !is_limited())
        return result;
    struct memory seen = {.total_bytes = *bytes};
    if (narrow(plimsoll_gpu_of_device(dev), &seen))
        *bytes = clamped(seen.total_bytes);
    return result;
}

/* --- NVML ------------------------------------------------------------------------------------------------
 */

enum plimsoll_source plimsoll_view_source(void) {
    if (plimsoll_depth > 0)
        return SOURCE_DRIVER;
    enum plimsoll_attachment attachment = plimsoll_map_files();
    if (attachment < ATTACHMENT_MAPPED)
        return attachment == ATTACHMENT_UNKNOWN ? SOURCE_NONE : SOURCE_DRIVER;
    plimsoll_refresh();
    return plimsoll_is_whole() ? SOURCE_DRIVER : SOURCE_LIBRARY;
}

/* NVML's `used` includes reserved memory in this version. So total and free memory are the container's, and
 * the difference counts as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    enum plimsoll_source source = plimsoll_view_source();
    if (result != NVML_SUCCESS || source == SOURCE_DRIVER)
        return result;
    if (source == SOURCE_NONE)
        return NVML_ERROR_NOT_READY;
    struct memory seen = {.total_bytes = memory->total, .free_bytes = memory->free};
    if (narrow(plimsoll_gpu_of_handle(device), &seen)) {
        memory->total = seen.total_bytes;
        memory->used = seen.total_bytes - seen.free_bytes;
        memory->free = seen.free_bytes;
    }
    return result;
}

/* In the second version reserved, used and free memory add up to the total. So `reserved` gets the unused
 * part of the line that the card does not have free. */
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    enum plimsoll_source source = plimsoll_view_source();
    if (result != NVML_SUCCESS || source == SOURCE_DRIVER)
        return result;
    if (source == SOURCE_NONE)
        return NVML_ERROR_NOT_READY;
    struct memory seen = {.total_bytes = memory->total, .free_bytes = memory->free};
    if (narrow(plimsoll_gpu_of_handle(device), &seen)) {
        memory->total = seen.total_bytes;
        memory->reserved = seen.total_bytes - seen.used_bytes - seen.free_bytes;
        memory->used = seen.used_bytes;
        memory->free = seen.free_bytes;
    }
    return result;
}
