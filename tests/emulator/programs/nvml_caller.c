/* An ordinary C program against NVIDIA's nvml.h, for what Python cannot see: sizes, buffers, old structs.
 *
 * Expects one process with a context on GPU 0. Prints the first check that fails and exits with 1. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                   \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

enum { CANARY = 0x5a };

static int is_untouched(const void *memory, size_t from, size_t size) {
    const unsigned char *byte = memory;
    for (size_t i = from; i < size; i++)
        if (byte[i] != CANARY)
            return 0;
    return 1;
}

static int check_before_init(void) {
    nvmlDevice_t device;
    nvmlEventSet_t set;
    CHECK(nvmlDeviceGetHandleByIndex_v2(0, &device) == NVML_ERROR_UNINITIALIZED);
    CHECK(nvmlEventSetCreate(&set) == NVML_ERROR_UNINITIALIZED);
    CHECK(nvmlShutdown() == NVML_ERROR_UNINITIALIZED);
    CHECK(strcmp(nvmlErrorString(NVML_ERROR_GPU_IS_LOST), "GPU is lost") == 0);
    CHECK(strcmp(nvmlErrorString((nvmlReturn_t)12345), "Unknown Error") == 0);
    return 0;
}

static int check_handles(nvmlDevice_t device) {
    nvmlDevice_t other;
    unsigned count = 0, index;
    CHECK(nvmlDeviceGetCount(&count) == NVML_SUCCESS && count == 3);
    CHECK(nvmlDeviceGetCount_v2(NULL) == NVML_ERROR_INVALID_ARGUMENT);
    CHECK(nvmlDeviceGetHandleByIndex(0, &other) == NVML_SUCCESS && other == device);
    CHECK(nvmlDeviceGetHandleByIndex_v2(0, NULL) == NVML_ERROR_INVALID_ARGUMENT);
    CHECK(nvmlDeviceGetIndex(NULL, &index) == NVML_ERROR_INVALID_ARGUMENT);
    CHECK(nvmlDeviceGetIndex((nvmlDevice_t)(void *)&count, &index) == NVML_ERROR_INVALID_ARGUMENT);
    CHECK(nvmlDeviceGetIndex(device, NULL) == NVML_ERROR_INVALID_ARGUMENT);
    return 0;
}

static int check_buffers(nvmlDevice_t device) {
    char text[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    memset(text, CANARY, sizeof text);
    CHECK(nvmlDeviceGetName(device, text, 9) == NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK(is_untouched(text, 0, sizeof text));
    CHECK(nvmlDeviceGetName(device, text, 10) == NVML_SUCCESS && strcmp(text, "NVIDIA L4") == 0);
    CHECK(is_untouched(text, 10, sizeof text));
    CHECK(nvmlDeviceGetUUID(device, text, 40) == NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK(nvmlDeviceGetUUID(device, text, 41) == NVML_SUCCESS);
    CHECK(nvmlSystemGetDriverVersion(text, 3) == NVML_ERROR_INSUFFICIENT_SIZE);
    return 0;
}

static int check_lists(nvmlDevice_t device) {
    nvmlProcessInfo_t infos[2];
    nvmlProcessInfo_v1_t old[2];
    unsigned count = 0;
    CHECK(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL) == NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK(count == 1);
    CHECK(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL) == NVML_ERROR_INVALID_ARGUMENT);
    count = 2;
    memset(infos, CANARY, sizeof infos);
    CHECK(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos) == NVML_SUCCESS && count == 1);
    CHECK(infos[0].usedGpuMemory > 0 && is_untouched(infos, sizeof infos[0], sizeof infos));
    count = 2;
    memset(old, CANARY, sizeof old);
    CHECK(nvmlDeviceGetComputeRunningProcesses(device, &count, old) == NVML_SUCCESS && count == 1);
    CHECK(old[0].pid == infos[0].pid && old[0].usedGpuMemory == infos[0].usedGpuMemory);
    CHECK(is_untouched(old, sizeof old[0], sizeof old));
    return 0;
}

static int check_old_structs(nvmlDevice_t device) {
    nvmlPciInfo_t pci;
    nvmlMemory_v2_t memory = {.version = 1};
    memset(&pci, CANARY, sizeof pci);
    CHECK(nvmlDeviceGetPciInfo(device, &pci) == NVML_SUCCESS && pci.bus == 0x17);
    CHECK(is_untouched(&pci, offsetof(nvmlPciInfo_t, pciSubSystemId), sizeof pci));
    CHECK(nvmlDeviceGetPciInfo_v2(device, &pci) == NVML_SUCCESS &&
          strcmp(pci.busIdLegacy, "0000:17:00.0") == 0);
    CHECK(is_untouched(&pci, offsetof(nvmlPciInfo_t, busId), sizeof pci));
    CHECK(nvmlDeviceGetPciInfo_v3(device, &pci) == NVML_SUCCESS &&
          strcmp(pci.busId, "00000000:17:00.0") == 0);
    CHECK(nvmlDeviceGetMemoryInfo_v2(device, &memory) == NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memory.version = nvmlMemory_v2;
    CHECK(nvmlDeviceGetMemoryInfo_v2(device, &memory) == NVML_SUCCESS);
    CHECK(memory.total == memory.reserved + memory.used + memory.free);
    return 0;
}

static int check_samples(nvmlDevice_t device) {
    nvmlSample_t samples[256];
    nvmlValueType_t type;
    unsigned count = 0;
    CHECK(nvmlDeviceGetSamples(device, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, NULL) == NVML_SUCCESS);
    CHECK(count > 0 && count <= 256);
    count = 0;
    CHECK(nvmlDeviceGetSamples(device, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, samples) ==
          NVML_ERROR_INVALID_ARGUMENT);
    /* A young node has no samples yet. */
    do
        count = 1;
    while (nvmlDeviceGetSamples(device, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &count, samples) ==
           NVML_ERROR_NOT_FOUND);
    CHECK(count == 1 && type == NVML_VALUE_TYPE_UNSIGNED_INT);
    CHECK(nvmlDeviceGetSamples(device, NVML_GPU_UTILIZATION_SAMPLES, ~0ull, &type, &count, samples) ==
          NVML_ERROR_NOT_FOUND);
    CHECK(nvmlDeviceGetSamples(device, NVML_TOTAL_POWER_SAMPLES, 0, &type, &count, samples) ==
          NVML_ERROR_NOT_SUPPORTED);
    return 0;
}

static int check_events(nvmlDevice_t device) {
    nvmlEventSet_t set;
    nvmlEventData_t data;
    CHECK(nvmlEventSetCreate(NULL) == NVML_ERROR_INVALID_ARGUMENT);
    CHECK(nvmlEventSetCreate(&set) == NVML_SUCCESS);
    CHECK(nvmlDeviceRegisterEvents(device, nvmlEventTypeXidCriticalError, NULL) ==
          NVML_ERROR_INVALID_ARGUMENT);
    CHECK(nvmlDeviceRegisterEvents(device, nvmlEventTypeXidCriticalError, set) == NVML_SUCCESS);
    CHECK(nvmlEventSetWait_v2(set, NULL, 0) == NVML_ERROR_INVALID_ARGUMENT);
    printf("registered\n");
    fflush(stdout);
    memset(&data, CANARY, sizeof data);
    CHECK(nvmlEventSetWait(set, &data, 120000) == NVML_SUCCESS);
    CHECK(data.device == device && data.eventType == nvmlEventTypeXidCriticalError && data.eventData == 79);
    CHECK(is_untouched(&data, offsetof(nvmlEventData_t, gpuInstanceId), sizeof data));
    CHECK(nvmlEventSetWait_v2(set, &data, 120000) == NVML_SUCCESS && data.eventData == 13);
    CHECK(data.gpuInstanceId == 0xffffffffu && data.computeInstanceId == 0xffffffffu);
    CHECK(nvmlEventSetWait_v2(set, &data, 1) == NVML_ERROR_TIMEOUT);
    CHECK(nvmlEventSetFree(set) == NVML_SUCCESS && nvmlEventSetFree(NULL) == NVML_ERROR_INVALID_ARGUMENT);
    return 0;
}

int main(void) {
    nvmlDevice_t device;
    if (check_before_init())
        return 1;
    CHECK(nvmlInit_v2() == NVML_SUCCESS);
    CHECK(nvmlDeviceGetHandleByIndex_v2(0, &device) == NVML_SUCCESS);
    if (check_handles(device) || check_buffers(device) || check_lists(device) || check_old_structs(device) ||
        check_samples(device) || check_events(device))
        return 1;
    CHECK(nvmlShutdown() == NVML_SUCCESS);
    return 0;
}
