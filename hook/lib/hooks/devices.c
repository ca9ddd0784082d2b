/* The GPUs that NVML shows: the container's, in NVML's own order and numbered from 0.
 *
 * If the container's runtime left only those in place anyway, all of them are listed and nothing changes.
 * NVML lists MIG instances with their card only, so a container with an instance sees what its runtime shows
 * it. A card that NVML cannot name (lost) is in no container's list.
 */
#include <string.h>

#include "driver/driver.h"
#include "driver/gpus.h"
#include "hooks/views.h"

/* NVML numbers GPUs in two ways: the first versions leave out cards to which the caller has no rights. */
struct order {
    nvmlReturn_t (*count)(unsigned *count);
    nvmlReturn_t (*handle)(unsigned index, nvmlDevice_t *device);
};

static bool is_instance(const char *uuid) {
    return strncmp(uuid, "MIG-", 4) == 0;
}

static bool has_instances(void) {
    for (unsigned i = 0; i < plimsoll.gpu_count; i++)
        if (is_instance(plimsoll.gpus[i].uuid))
            return true;
    return false;
}

static bool is_shown(nvmlDevice_t device) {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    if (CALLED(nvmlDeviceGetUUID)(device, uuid, sizeof(uuid)) != NVML_SUCCESS)
        return false;
    return is_instance(uuid) || plimsoll_gpu_of_uuid_text(uuid) != GPU_UNLISTED;
}

static enum plimsoll_source source_of_devices(void) {
    enum plimsoll_source source = plimsoll_view_source();
    return source == SOURCE_LIBRARY && has_instances() ? SOURCE_DRIVER : source;
}

/* The number of shown GPUs among the driver's first `end`. The handle of shown number `wanted` goes to
 * `found`. */
static unsigned count_shown(const struct order *in, unsigned end, unsigned wanted, nvmlDevice_t *found) {
    unsigned shown = 0;
    for (unsigned i = 0; i < end; i++) {
        nvmlDevice_t device;
        if (in->handle(i, &device) != NVML_SUCCESS || !is_shown(device))
            continue;
        if (found && shown == wanted)
            *found = device;
        shown++;
    }
    return shown;
}

static nvmlReturn_t narrow_count(const struct order *in, unsigned *count) {
    unsigned all = 0;
    nvmlReturn_t result = in->count(count ? &all : NULL);
    if (result == NVML_SUCCESS)
        *count = count_shown(in, all, 0, NULL);
    return result;
}

static nvmlReturn_t narrow_index(const struct order *in, unsigned wanted, nvmlDevice_t *device) {
    unsigned all = 0;
    nvmlDevice_t found = NULL;
    nvmlReturn_t result = in->count(&all);
    if (result != NVML_SUCCESS)
        return result;
    if (!device || wanted >= count_shown(in, all, wanted, &found))
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = found;
    return NVML_SUCCESS;
}

/* The driver may call its own exported functions, which lead here. Inside a hook the driver's answer
 * stays. */
#define NARROWED(source, of_driver, of_library)                                                              \
    do {                                                                                                     \
        enum plimsoll_source by = source;                                                                    \
        if (by == SOURCE_NONE)                                                                               \
            return NVML_ERROR_NOT_READY;                                                                     \
        plimsoll_depth++;                                                                                    \
        nvmlReturn_t result = by == SOURCE_DRIVER ? (of_driver) : (of_library);                              \
        plimsoll_depth--;                                                                                    \
        return result;                                                                                       \
    } while (0)

static struct order first_order(void) {
    return (struct order){REAL(nvmlDeviceGetCount), REAL(nvmlDeviceGetHandleByIndex)};
}

static struct order second_order(void) {
    return (struct order){REAL(nvmlDeviceGetCount_v2), REAL(nvmlDeviceGetHandleByIndex_v2)};
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount) {
    struct order in = first_order();
    NARROWED(source_of_devices(), in.count(deviceCount), narrow_count(&in, deviceCount));
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount) {
    struct order in = second_order();
    NARROWED(source_of_devices(), in.count(deviceCount), narrow_count(&in, deviceCount));
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    struct order in = first_order();
    NARROWED(source_of_devices(), in.handle(index, device), narrow_index(&in, index, device));
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    struct order in = second_order();
    NARROWED(source_of_devices(), in.handle(index, device), narrow_index(&in, index, device));
}

/* The driver numbers a GPU by how many stand before it. This index counts the shown ones. An instance's index
 * is the one within its card. */
static nvmlReturn_t narrow_place(nvmlDevice_t device, unsigned *index) {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    unsigned place = 0;
    nvmlReturn_t result = REAL(nvmlDeviceGetIndex)(device, index ? &place : NULL);
    if (result != NVML_SUCCESS)
        return result;
    if (!is_shown(device))
        return NVML_ERROR_INVALID_ARGUMENT;
    struct order in = second_order();
    (void)CALLED(nvmlDeviceGetUUID)(device, uuid, sizeof(uuid));
    *index = is_instance(uuid) ? place : count_shown(&in, place, 0, NULL);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    NARROWED(source_of_devices(), REAL(nvmlDeviceGetIndex)(device, index), narrow_place(device, index));
}

/* The GPU that was found by name, if the container may see it. Another container's GPU counts as missing. */
static nvmlReturn_t show(nvmlReturn_t result, const nvmlDevice_t *found, nvmlDevice_t *device) {
    if (result == NVML_SUCCESS && !is_shown(*found))
        return NVML_ERROR_NOT_FOUND;
    if (result == NVML_SUCCESS)
        *device = *found;
    return result;
}

#define FIND(symbol, name, device)                                                                           \
    do {                                                                                                     \
        nvmlDevice_t found = NULL;                                                                           \
        NARROWED(source_of_devices(), REAL(symbol)(name, device),                                            \
                 show(REAL(symbol)(name, (device) ? &found : NULL), &found, device));                        \
    } while (0)

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    FIND(nvmlDeviceGetHandleByUUID, uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device) {
    FIND(nvmlDeviceGetHandleByUUIDV, uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device) {
    FIND(nvmlDeviceGetHandleByPciBusId, pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device) {
    FIND(nvmlDeviceGetHandleByPciBusId_v2, pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    FIND(nvmlDeviceGetHandleBySerial, serial, device);
}
