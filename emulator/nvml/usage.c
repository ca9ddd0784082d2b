/* The load of the GPUs: utilisation, samples, and utilisation per process.
 *
 * The book keeps the samples, whichever process moves the clock, so no process needs to watch. The sample
 * period is the node file's `sample`. Memory is busy during copies and fills; see traffic.h. */
#include "nvml/session.h"

#include <string.h>

/* A part of a sample's period. */
static unsigned period_pct(uint64_t part_ns) {
    uint64_t period_ns = nvml_node()->sample_ns;
    uint64_t pct = (part_ns * 100 + period_ns / 2) / period_ns;
    return pct > 100 ? 100 : (unsigned)pct;
}

static nvmlUtilization_t latest(int gpu) {
    struct book_sample samples[BOOK_MAX_SAMPLES];
    uint32_t count = book_samples(nvml_book(), gpu, 0, samples);
    if (!count)
        return (nvmlUtilization_t){0};
    const struct book_sample *last = &samples[count - 1];
    return (nvmlUtilization_t){.gpu = period_pct(last->busy_ns), .memory = period_pct(last->traffic_ns)};
}

unsigned nvml_busy_pct(int gpu) {
    return latest(gpu).gpu;
}

/* In MIG mode the driver measures no utilisation, neither of the card nor of its instances. */
static nvmlReturn_t find_measured(const char *function, nvmlDevice_t device, const void *output, int *gpu) {
    nvmlReturn_t found = nvml_find_present_gpu_for(function, device, output, gpu);
    return found == NVML_SUCCESS && nvml_node()->gpus[*gpu].is_mig ? NVML_ERROR_NOT_SUPPORTED : found;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
    int gpu;
    nvmlReturn_t found = find_measured(__func__, device, utilization, &gpu);
    if (found == NVML_SUCCESS)
        *utilization = latest(gpu);
    return found;
}

/* The video engines never have work. */
#define IDLE_ENGINE(function)                                                                                \
    nvmlReturn_t function(nvmlDevice_t device, unsigned *utilization, unsigned *period_us) {                 \
        int gpu;                                                                                             \
        nvmlReturn_t found = find_measured(#function, device, period_us ? utilization : NULL, &gpu);         \
        if (found != NVML_SUCCESS)                                                                           \
            return found;                                                                                    \
        *utilization = 0;                                                                                    \
        *period_us = (unsigned)(nvml_node()->sample_ns / 1000);                                              \
        return NVML_SUCCESS;                                                                                 \
    }

IDLE_ENGINE(nvmlDeviceGetEncoderUtilization)
IDLE_ENGINE(nvmlDeviceGetDecoderUtilization)

static nvmlReturn_t check_sample_request(const char *function, nvmlDevice_t device, nvmlSamplingType_t type,
                                         const nvmlValueType_t *value_type, const unsigned *count,
                                         const nvmlSample_t *samples, int *gpu) {
    nvmlReturn_t found = find_measured(function, device, value_type ? count : NULL, gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (type >= NVML_SAMPLINGTYPE_COUNT || (samples && !*count))
        return NVML_ERROR_INVALID_ARGUMENT;
    bool kept = type == NVML_GPU_UTILIZATION_SAMPLES || type == NVML_MEMORY_UTILIZATION_SAMPLES;
    return kept ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* If the caller has room for fewer samples than there are, returns the oldest. A second call from the last
 * stamp then loses none. */
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                  unsigned long long last_seen_us, nvmlValueType_t *value_type,
                                  unsigned *count, nvmlSample_t *samples) {
    struct book_sample kept[BOOK_MAX_SAMPLES];
    int gpu;
    nvmlReturn_t asked = check_sample_request(__func__, device, type, value_type, count, samples, &gpu);
    if (asked != NVML_SUCCESS)
        return asked;
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (!samples) {
        *count = BOOK_MAX_SAMPLES;
        return NVML_SUCCESS;
    }
    uint32_t newer = book_samples(nvml_book(), gpu, nvml_unstamp_ns(last_seen_us), kept);
    if (!newer)
        return NVML_ERROR_NOT_FOUND;
    *count = newer < *count ? newer : *count;
    for (uint32_t i = 0; i < *count; i++)
        samples[i] = (nvmlSample_t){
            .timeStamp = nvml_stamp_us(kept[i].time_ns),
            .sampleValue.uiVal =
                period_pct(type == NVML_GPU_UTILIZATION_SAMPLES ? kept[i].busy_ns : kept[i].traffic_ns),
        };
    return NVML_SUCCESS;
}

/* The use of a GPU by one process, averaged over the samples newer than the caller's stamp. */
struct usage {
    uint32_t pid;
    unsigned busy_pct, memory_pct;
    unsigned long long stamp_us;
};

static bool measure(const struct book_process *process, const struct book_sample *samples, uint32_t count,
                    struct usage *usage) {
    unsigned sum_pct = 0, traffic_pct = 0, covered = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (samples[i].time_ns <= process->claimed_ns)
            continue; /* the slot belonged to another process then */
        sum_pct += samples[i].process_pct[process->slot];
        traffic_pct += samples[i].process_traffic_pct[process->slot];
        covered++;
    }
    if (!sum_pct || !process->pid)
        return false;
    unsigned average_pct = (sum_pct + covered / 2) / covered;
    *usage = (struct usage){
        .pid = process->pid,
        .busy_pct = average_pct ? average_pct : 1, /* the process did work, which 0 would hide */
        .memory_pct = (traffic_pct + covered / 2) / covered,
        .stamp_us = nvml_stamp_us(samples[count - 1].time_ns),
    };
    return true;
}

static uint32_t measure_all(int gpu, unsigned long long last_seen_us, struct usage usages[BOOK_MAX_SLOTS]) {
    struct book_sample samples[BOOK_MAX_SAMPLES];
    struct book_snapshot snapshot;
    uint32_t found = 0;
    book_look(nvml_book(), gpu, &snapshot);
    uint32_t count = book_samples(nvml_book(), gpu, nvml_unstamp_ns(last_seen_us), samples);
    for (uint32_t i = 0; i < snapshot.process_count; i++)
        found += measure(&snapshot.processes[i], samples, count, &usages[found]);
    return found;
}

/* As in the driver, the needed count is that of the whole buffer, however many processes there are. */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *utilization,
                                             unsigned *count, unsigned long long last_seen_us) {
    struct usage usages[BOOK_MAX_SLOTS];
    int gpu;
    nvmlReturn_t found = find_measured(__func__, device, count, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    uint32_t used = utilization ? measure_all(gpu, last_seen_us, usages) : BOOK_MAX_SLOTS;
    if (!used)
        return NVML_ERROR_NOT_FOUND;
    if (!utilization || used > *count) {
        *count = used;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    for (uint32_t i = 0; i < used; i++)
        utilization[i] = (nvmlProcessUtilizationSample_t){.pid = usages[i].pid,
                                                          .timeStamp = usages[i].stamp_us,
                                                          .smUtil = usages[i].busy_pct,
                                                          .memUtil = usages[i].memory_pct};
    *count = used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *info) {
    struct usage usages[BOOK_MAX_SLOTS];
    int gpu;
    nvmlReturn_t found = find_measured(__func__, device, info, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (info->version != nvmlProcessesUtilizationInfo_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    uint32_t room = info->procUtilArray ? info->processSamplesCount : 0;
    uint32_t used = room ? measure_all(gpu, info->lastSeenTimeStamp, usages) : BOOK_MAX_SLOTS;
    if (!used)
        return NVML_ERROR_NOT_FOUND;
    info->processSamplesCount = used;
    if (used > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (uint32_t i = 0; i < used; i++)
        info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){.pid = usages[i].pid,
                                                                   .timeStamp = usages[i].stamp_us,
                                                                   .smUtil = usages[i].busy_pct,
                                                                   .memUtil = usages[i].memory_pct};
    return NVML_SUCCESS;
}
