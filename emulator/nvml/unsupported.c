/* Features that the emulated card does not have: ECC, fans of its own, a serial number, accounting; and
 * a few figures that no program here reads.
 *
 * A program gets NOT_SUPPORTED from them, as from a consumer card, rather than a library without the
 * symbol. The functions check only the handle. */
#include "nvml/session.h"

/* A macro defines all functions. C11 requires names for the parameters, which are unused. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

static nvmlReturn_t refuse(nvmlDevice_t device) {
    int gpu;
    nvmlReturn_t found = nvml_find_gpu(device, device, &gpu);
    return found == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : found;
}

#define UNSUPPORTED(function, ...)                                                                           \
    nvmlReturn_t function(nvmlDevice_t device, __VA_ARGS__) {                                                \
        return refuse(device);                                                                               \
    }

UNSUPPORTED(nvmlDeviceGetEccMode, nvmlEnableState_t *current, nvmlEnableState_t *pending)
UNSUPPORTED(nvmlDeviceGetDefaultEccMode, nvmlEnableState_t *mode)
UNSUPPORTED(nvmlDeviceGetTotalEccErrors, nvmlMemoryErrorType_t error, nvmlEccCounterType_t counter,
            unsigned long long *count)
UNSUPPORTED(nvmlDeviceGetDetailedEccErrors, nvmlMemoryErrorType_t error, nvmlEccCounterType_t counter,
            nvmlEccErrorCounts_t *counts)
UNSUPPORTED(nvmlDeviceGetMemoryErrorCounter, nvmlMemoryErrorType_t error, nvmlEccCounterType_t counter,
            nvmlMemoryLocation_t location, unsigned long long *count)
UNSUPPORTED(nvmlDeviceGetRetiredPages, nvmlPageRetirementCause_t cause, unsigned *count,
            unsigned long long *addresses)
UNSUPPORTED(nvmlDeviceGetRetiredPages_v2, nvmlPageRetirementCause_t cause, unsigned *count,
            unsigned long long *addresses, unsigned long long *stamps)
UNSUPPORTED(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t *pending)
UNSUPPORTED(nvmlDeviceGetRemappedRows, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
            unsigned *failed)

/* The NUMA node that the GPU itself forms, as on Grace Hopper. */
UNSUPPORTED(nvmlDeviceGetNumaNodeId, unsigned *node)

UNSUPPORTED(nvmlDeviceOnSameBoard, nvmlDevice_t other, int *same)
UNSUPPORTED(nvmlDeviceGetFanSpeed, unsigned *speed)
UNSUPPORTED(nvmlDeviceGetFanSpeed_v2, unsigned fan, unsigned *speed)
UNSUPPORTED(nvmlDeviceGetSerial, char *serial, unsigned length)
UNSUPPORTED(nvmlDeviceGetBoardPartNumber, char *number, unsigned length)
UNSUPPORTED(nvmlDeviceGetInforomVersion, nvmlInforomObject_t object, char *version, unsigned length)
UNSUPPORTED(nvmlDeviceGetInforomImageVersion, char *version, unsigned length)
UNSUPPORTED(nvmlDeviceGetGspFirmwareVersion, char *version)
UNSUPPORTED(nvmlDeviceGetClock, nvmlClockType_t type, nvmlClockId_t id, unsigned *clock_mhz)
UNSUPPORTED(nvmlDeviceGetApplicationsClock, nvmlClockType_t type, unsigned *clock_mhz)
UNSUPPORTED(nvmlDeviceGetDefaultApplicationsClock, nvmlClockType_t type, unsigned *clock_mhz)
UNSUPPORTED(nvmlDeviceGetViolationStatus, nvmlPerfPolicyType_t policy, nvmlViolationTime_t *time)
UNSUPPORTED(nvmlDeviceGetPcieThroughput, nvmlPcieUtilCounter_t counter, unsigned *value)
UNSUPPORTED(nvmlDeviceGetPcieReplayCounter, unsigned *value)
UNSUPPORTED(nvmlDeviceGetAccountingStats, unsigned pid, nvmlAccountingStats_t *stats)
UNSUPPORTED(nvmlDeviceGetAccountingPids, unsigned *count, unsigned *pids)
UNSUPPORTED(nvmlDeviceGetAccountingBufferSize, unsigned *size)
