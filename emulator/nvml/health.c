/* Temperature, power, clocks, modes.
 *
 * The emulator has no physical model. Each value is a plain function of the GPU's utilisation, within a
 * server card's range, so that dashboards have data. */
#include "nvml/session.h"

enum {
    IDLE_CELSIUS = 30,
    BUSY_CELSIUS = 70,
    SLOWDOWN_CELSIUS = 90,
    SHUTDOWN_CELSIUS = 95,
    IDLE_POWER_MW = 30000,
    POWER_LIMIT_MW = 300000,
    LOWEST_POWER_LIMIT_MW = 100000,
    IDLE_CLOCK_MHZ = 210,
    BUSY_CLOCK_MHZ = 1755,
    MEMORY_CLOCK_MHZ = 7500,
    PCIE_GENERATION = 4,
    PCIE_WIDTH = 16,
};

/* A value between `idle` and `busy`, in proportion to the GPU's utilisation. */
static unsigned between(int gpu, unsigned idle, unsigned busy) {
    return idle + (busy - idle) * nvml_busy_pct(gpu) / 100;
}

static nvmlReturn_t give(nvmlDevice_t device, unsigned *output, unsigned value) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, output, &gpu);
    if (found == NVML_SUCCESS)
        *output = value;
    return found;
}

static nvmlReturn_t give_state(nvmlDevice_t device, nvmlEnableState_t *output, nvmlEnableState_t state) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, output, &gpu);
    if (found == NVML_SUCCESS)
        *output = state;
    return found;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                      unsigned *celsius) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, celsius, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (sensor != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    *celsius = between(gpu, IDLE_CELSIUS, BUSY_CELSIUS);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature) {
    unsigned celsius;
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, temperature, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (temperature->version != nvmlTemperature_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    found = nvmlDeviceGetTemperature(device, temperature->sensorType, &celsius);
    if (found == NVML_SUCCESS)
        temperature->temperature = (int)celsius;
    return found;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t threshold,
                                               unsigned *celsius) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, celsius, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (threshold >= NVML_TEMPERATURE_THRESHOLD_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (threshold > NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        return NVML_ERROR_NOT_SUPPORTED;
    *celsius = threshold == NVML_TEMPERATURE_THRESHOLD_SHUTDOWN ? SHUTDOWN_CELSIUS : SLOWDOWN_CELSIUS;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *power_mw) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, power_mw, &gpu);
    if (found == NVML_SUCCESS)
        *power_mw = between(gpu, IDLE_POWER_MW, POWER_LIMIT_MW);
    return found;
}

/* NVML counts from the time at which the driver was loaded; the machine's start stands for it here. */
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy_mj) {
    struct book_snapshot snapshot;
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, energy_mj, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    book_look(nvml_book(), gpu, &snapshot);
    *energy_mj = snapshot.time_ns / 1000000 * IDLE_POWER_MW / 1000 +
                 (snapshot.busy_ns + snapshot.spun_ns) / 1000000 * (POWER_LIMIT_MW - IDLE_POWER_MW) / 1000;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    return give_state(device, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *limit_mw) {
    return give(device, limit_mw, POWER_LIMIT_MW);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned *limit_mw) {
    return give(device, limit_mw, POWER_LIMIT_MW);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *limit_mw) {
    return give(device, limit_mw, POWER_LIMIT_MW);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *least_mw,
                                                          unsigned *most_mw) {
    nvmlReturn_t found = give(device, most_mw ? least_mw : NULL, LOWEST_POWER_LIMIT_MW);
    if (found == NVML_SUCCESS)
        *most_mw = POWER_LIMIT_MW;
    return found;
}

static nvmlReturn_t give_clock(nvmlDevice_t device, nvmlClockType_t type, unsigned *clock_mhz, bool most) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, clock_mhz, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (type >= NVML_CLOCK_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (type == NVML_CLOCK_MEM)
        *clock_mhz = MEMORY_CLOCK_MHZ;
    else
        *clock_mhz = most || nvml_busy_pct(gpu) ? BUSY_CLOCK_MHZ : IDLE_CLOCK_MHZ;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned *clock_mhz) {
    return give_clock(device, type, clock_mhz, false);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned *clock_mhz) {
    return give_clock(device, type, clock_mhz, true);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id,
                                unsigned *clock_mhz) {
    if (nvml_is_initialized() && id >= NVML_CLOCK_ID_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    return give_clock(device, type, clock_mhz, id != NVML_CLOCK_ID_CURRENT);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *state) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, state, &gpu);
    if (found == NVML_SUCCESS)
        *state = nvml_busy_pct(gpu) ? NVML_PSTATE_0 : NVML_PSTATE_8;
    return found;
}

nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t *state) {
    return nvmlDeviceGetPerformanceState(device, state);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, reasons, &gpu);
    if (found == NVML_SUCCESS)
        *reasons = nvml_busy_pct(gpu) ? nvmlClocksEventReasonNone : nvmlClocksEventReasonGpuIdle;
    return found;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

static nvmlReturn_t give_supported_reasons(nvmlDevice_t device, unsigned long long *reasons) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, reasons, &gpu);
    if (found == NVML_SUCCESS)
        *reasons = nvmlClocksEventReasonGpuIdle;
    return found;
}

nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
    return give_supported_reasons(device, reasons);
}

nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    return give_supported_reasons(device, reasons);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned *generation) {
    return give(device, generation, PCIE_GENERATION);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned *generation) {
    return give(device, generation, PCIE_GENERATION);
}

nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device, unsigned *generation) {
    return give(device, generation, PCIE_GENERATION);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned *width) {
    return give(device, width, PCIE_WIDTH);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned *width) {
    return give(device, width, PCIE_WIDTH);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    return give_state(device, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    return give_state(device, mode, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *active) {
    return give_state(device, active, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    return give_state(device, mode, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, mode, &gpu);
    if (found == NVML_SUCCESS)
        *mode = NVML_COMPUTEMODE_DEFAULT;
    return found;
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t *mode) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, mode, &gpu);
    if (found == NVML_SUCCESS)
        *mode = NVML_GPU_VIRTUALIZATION_MODE_NONE;
    return found;
}

/* The card is cooled by the server's fans. */
nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned *count) {
    return give(device, count, 0);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    return give(device, count, 0);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
    return give(device, is_mig, 0);
}
