/* Temperature, power, clocks, modes.
 *
 * The emulator has no physical model. Each value is a plain function of the GPU's utilisation, within a
 * server card's range, so that dashboards have data. */
#include "nvml/getter.h"

enum {
    IDLE_CELSIUS = 30,
    BUSY_CELSIUS = 70,
    SLOWDOWN_CELSIUS = 90,
    SHUTDOWN_CELSIUS = 95,
    IDLE_POWER_MW = 30000,
    POWER_LIMIT_MW = 300000,
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

/* NVML counts from the time at which the driver was loaded, or the GPU was reset. Without a reset, the
 * machine's start stands for it here. Work before the reset counts on: the book has no record of when it was.
 */
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy_mj) {
    struct book_snapshot snapshot;
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, energy_mj, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    book_look(nvml_book(), gpu, &snapshot);
    uint64_t idle_ns = snapshot.time_ns - book_reset_ns(nvml_book(), gpu);
    *energy_mj = idle_ns / 1000000 * IDLE_POWER_MW / 1000 +
                 (snapshot.busy_ns + snapshot.spun_ns) / 1000000 * (POWER_LIMIT_MW - IDLE_POWER_MW) / 1000;
    return NVML_SUCCESS;
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

/* Why the clocks are not at their highest. */
static unsigned long long reasons_of(int gpu) {
    uint64_t injected = book_fault(nvml_book(), gpu, BOOK_CLOCKS);
    if (injected)
        return injected;
    return nvml_busy_pct(gpu) ? nvmlClocksEventReasonNone : nvmlClocksEventReasonGpuIdle;
}

GETTER(nvmlDeviceGetPowerUsage, unsigned, between(gpu, IDLE_POWER_MW, POWER_LIMIT_MW))
GETTER(nvmlDeviceGetPowerManagementLimit, unsigned, POWER_LIMIT_MW)
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned, POWER_LIMIT_MW)
GETTER(nvmlDeviceGetPerformanceState, nvmlPstates_t, nvml_busy_pct(gpu) ? NVML_PSTATE_0 : NVML_PSTATE_8)
GETTER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, reasons_of(gpu))
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, reasons_of(gpu))
GETTER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, PCIE_GENERATION)
GETTER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, PCIE_GENERATION)
GETTER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, PCIE_WIDTH)
GETTER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, PCIE_WIDTH)
GETTER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
GETTER(nvmlDeviceGetDisplayMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
GETTER(nvmlDeviceGetDisplayActive, nvmlEnableState_t, NVML_FEATURE_DISABLED)
GETTER(nvmlDeviceGetComputeMode, nvmlComputeMode_t, NVML_COMPUTEMODE_DEFAULT)
