/* Field values: one call queries many values, and each has its own return code. */
#include "nvml/session.h"

#include <sys/time.h>

static nvmlReturn_t count_links(nvmlDevice_t device, nvmlValue_t *value) {
    nvmlEnableState_t active;
    value->uiVal = 0;
    for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; link++)
        if (nvmlDeviceGetNvLinkState(device, link, &active) == NVML_SUCCESS && active)
            value->uiVal++;
    return NVML_SUCCESS;
}

static nvmlReturn_t answer(nvmlDevice_t device, nvmlFieldValue_t *field) {
    switch (field->fieldId) {
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
        field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        return count_links(device, &field->value);
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
        field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        return nvmlDeviceGetTotalEnergyConsumption(device, &field->value.ullVal);
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *fields) {
    struct timeval now;
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, count > 0 ? fields : NULL, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    gettimeofday(&now, NULL);
    for (int i = 0; i < count; i++) {
        fields[i].timestamp = (long long)now.tv_sec * 1000000 + now.tv_usec;
        fields[i].latencyUsec = 0;
        fields[i].nvmlReturn = answer(device, &fields[i]);
    }
    return NVML_SUCCESS;
}
