/* Field values: one call queries many values, and each has its own return code.
 *
 * Counts of ECC errors, retired pages and remapped rows are offered here alone, and are 0 until the book's
 * tool injects them. */
#include "nvml/session.h"

#include <sys/time.h>

enum { RECOVERY_ACTION = 230 }; /* NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, from the headers of r570 on */

static nvmlReturn_t count_links(nvmlDevice_t device, nvmlValue_t *value) {
    nvmlEnableState_t active;
    value->uiVal = 0;
    for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; link++)
        if (nvmlDeviceGetNvLinkState(device, link, &active) == NVML_SUCCESS && active)
            value->uiVal++;
    return NVML_SUCCESS;
}

/* The fault behind a field; BOOK_FAULTS for any other field. */
static enum book_fault fault_of(unsigned field) {
    switch (field) {
    case NVML_FI_DEV_ECC_DBE_VOL_TOTAL:
        return BOOK_ECC;
    case NVML_FI_DEV_RETIRED_PENDING:
        return BOOK_RETIRED;
    case NVML_FI_DEV_REMAPPED_PENDING:
        return BOOK_REMAP;
    case NVML_FI_DEV_REMAPPED_FAILURE:
        return BOOK_REMAP_FAILED;
    case RECOVERY_ACTION:
        return BOOK_RECOVERY;
    default:
        return BOOK_FAULTS;
    }
}

static nvmlReturn_t answer(nvmlDevice_t device, int gpu, nvmlFieldValue_t *field) {
    enum book_fault fault = fault_of(field->fieldId);
    if (fault != BOOK_FAULTS) {
        field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        field->value.ullVal = book_fault(nvml_book(), gpu, fault);
        return NVML_SUCCESS;
    }
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
        fields[i].nvmlReturn = answer(device, gpu, &fields[i]);
    }
    return NVML_SUCCESS;
}
