/* Features that the emulated card does not have, of those that programs such as nvitop and gpustat query:
 * ECC, fans of its own, a serial number.
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
UNSUPPORTED(nvmlDeviceGetTotalEccErrors, nvmlMemoryErrorType_t error, nvmlEccCounterType_t counter,
            unsigned long long *count)

UNSUPPORTED(nvmlDeviceOnSameBoard, nvmlDevice_t other, int *same)
UNSUPPORTED(nvmlDeviceGetFanSpeed, unsigned *speed)
UNSUPPORTED(nvmlDeviceGetFanSpeed_v2, unsigned fan, unsigned *speed)
UNSUPPORTED(nvmlDeviceGetSerial, char *serial, unsigned length)
UNSUPPORTED(nvmlDeviceGetPcieThroughput, nvmlPcieUtilCounter_t counter, unsigned *value)
