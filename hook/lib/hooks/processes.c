/* The processes that NVML shows: the container's own, by the pids under which they know each other.
 *
 * NVML itself lists every process on the card under the host's pids, which mean nothing in a container. So
 * the list here is `counts`: the living processes that have a context or memory. Their bytes sum up to what
 * the container uses, by the same numbers that hold it to its line. Graphics and MPS clients have no slot,
 * and their lists are empty.
 */
#include "driver/driver.h"
#include "driver/gpus.h"
#include "hooks/views.h"
#include "memory/ledger.h"

#define NO_INSTANCE UINT32_MAX /* NVML's value where there is no MIG */

enum sort { COMPUTE, GRAPHICS, MPS }; /* the numbers of nvmlProcessDetailList_t */

static unsigned list(nvmlDevice_t device, enum sort sort, struct plimsoll_listed found[PLIMSOLL_MAX_SLOTS]) {
    int gpu = sort == COMPUTE ? plimsoll_gpu_of_handle(device) : GPU_UNLISTED;
    return gpu < 0 ? 0 : plimsoll_list((unsigned)gpu, found);
}

/* Whether the driver accepts a call with room for no process: NVML is initialised, the handle is valid and
 * the card present. */
static bool is_good(nvmlReturn_t asked) {
    return asked == NVML_SUCCESS || asked == NVML_ERROR_INSUFFICIENT_SIZE;
}

/* NVML's rule for every list: the needed number is always returned, with an error if there is less room. */
static nvmlReturn_t check_room(unsigned *room, unsigned needed, const void *into) {
    if (*room > 0 && !into)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = needed > *room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    *room = needed;
    return result;
}

static nvmlProcessInfo_v1_t first_entry(const struct plimsoll_listed *of) {
    return (nvmlProcessInfo_v1_t){.pid = of->pid, .usedGpuMemory = of->used_bytes};
}

static nvmlProcessInfo_t entry(const struct plimsoll_listed *of) {
    return (nvmlProcessInfo_t){.pid = of->pid,
                               .usedGpuMemory = of->used_bytes,
                               .gpuInstanceId = NO_INSTANCE,
                               .computeInstanceId = NO_INSTANCE};
}

/* A list of processes of one sort: each version has its own entries, which are otherwise the same. */
#define LIST(symbol, info, sort, entry_of)                                                                   \
    nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *room, info *into) {                               \
        struct plimsoll_listed found[PLIMSOLL_MAX_SLOTS];                                                    \
        unsigned none = 0, count;                                                                            \
        enum plimsoll_source source = plimsoll_view_source();                                                \
        if (source == SOURCE_DRIVER || !room)                                                                \
            return REAL(symbol)(device, room, into);                                                         \
        if (source == SOURCE_NONE)                                                                           \
            return NVML_ERROR_NOT_READY;                                                                     \
        plimsoll_depth++;                                                                                    \
        nvmlReturn_t result = REAL(symbol)(device, &none, NULL);                                             \
        plimsoll_depth--;                                                                                    \
        if (!is_good(result))                                                                                \
            return result;                                                                                   \
        count = list(device, sort, found);                                                                   \
        result = check_room(room, count, into);                                                              \
        for (unsigned i = 0; result == NVML_SUCCESS && i < count; i++)                                       \
            into[i] = entry_of(&found[i]);                                                                   \
        return result;                                                                                       \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, COMPUTE, first_entry)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, COMPUTE, entry)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, COMPUTE, entry)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, GRAPHICS, first_entry)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, GRAPHICS, entry)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, GRAPHICS, entry)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, MPS, first_entry)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, MPS, entry)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, MPS, entry)

static nvmlReturn_t fill_details(nvmlDevice_t device, nvmlProcessDetailList_t *details) {
    struct plimsoll_listed found[PLIMSOLL_MAX_SLOTS];
    unsigned count = list(device, (enum sort)details->mode, found);
    nvmlReturn_t result = check_room(&details->numProcArrayEntries, count, details->procArray);
    for (unsigned i = 0; result == NVML_SUCCESS && i < count; i++)
        details->procArray[i] = (nvmlProcessDetail_v1_t){.pid = found[i].pid,
                                                         .usedGpuMemory = found[i].used_bytes,
                                                         .gpuInstanceId = NO_INSTANCE,
                                                         .computeInstanceId = NO_INSTANCE};
    return result;
}

/* A version newer than this library is refused, because its meaning is not known here. */
nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *plist) {
    enum plimsoll_source source = plimsoll_view_source();
    if (source == SOURCE_DRIVER || !plist)
        return REAL(nvmlDeviceGetRunningProcessDetailList)(device, plist);
    if (source == SOURCE_NONE)
        return NVML_ERROR_NOT_READY;
    if (plist->version != nvmlProcessDetailList_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlProcessDetailList_t nobody = {.version = plist->version, .mode = plist->mode};
    plimsoll_depth++;
    nvmlReturn_t result = REAL(nvmlDeviceGetRunningProcessDetailList)(device, &nobody);
    plimsoll_depth--;
    return is_good(result) ? fill_details(device, plist) : result;
}

/* No word shows how busy each process keeps the card, and the driver's list names other containers'
 * processes. So the library gives no answer. */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *utilization,
                                             unsigned int *processSamplesCount,
                                             unsigned long long lastSeenTimeStamp) {
    switch (plimsoll_view_source()) {
    case SOURCE_NONE:
        return NVML_ERROR_NOT_READY;
    case SOURCE_LIBRARY:
        return NVML_ERROR_NOT_SUPPORTED;
    case SOURCE_DRIVER:
        break;
    }
    return REAL(nvmlDeviceGetProcessUtilization)(device, utilization, processSamplesCount, lastSeenTimeStamp);
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *procesesUtilInfo) {
    switch (plimsoll_view_source()) {
    case SOURCE_NONE:
        return NVML_ERROR_NOT_READY;
    case SOURCE_LIBRARY:
        return NVML_ERROR_NOT_SUPPORTED;
    case SOURCE_DRIVER:
        break;
    }
    return REAL(nvmlDeviceGetProcessesUtilizationInfo)(device, procesesUtilInfo);
}
