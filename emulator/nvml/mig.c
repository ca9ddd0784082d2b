/* MIG: a card that is divided into GPU instances. NVML names each instance as a device of its own, beside the
 * cards, and answers few calls for it: its name, UUID, place, memory, processes, and those here. */
#include "nvml/session.h"

static const unsigned NO_INSTANCE = 0xffffffffu;

unsigned nvml_gpu_instance_id(unsigned index) {
    const struct node_gpu *gpu = &nvml_node()->gpus[index];
    return node_is_instance(gpu) ? node_gpu_instance_id(gpu) : NO_INSTANCE;
}

unsigned nvml_compute_instance_id(unsigned index) {
    return node_is_instance(&nvml_node()->gpus[index]) ? 0 : NO_INSTANCE;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    const struct node_gpu *gpu;
    nvmlReturn_t found = nvml_find_description(device, pending ? current : NULL, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (!gpu->is_mig)
        return NVML_ERROR_NOT_SUPPORTED; /* as from a consumer card */
    *current = *pending = NVML_DEVICE_MIG_ENABLE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    const struct node_gpu *gpu;
    nvmlReturn_t found = nvml_find_description(device, count, &gpu);
    if (found == NVML_SUCCESS)
        *count = gpu->is_mig ? NODE_MAX_INSTANCES : 0;
    return found;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig) {
    int card;
    nvmlReturn_t found = nvml_find_gpu(device, mig, &card);
    if (found != NVML_SUCCESS)
        return found;
    if (!nvml_node()->gpus[card].is_mig)
        return NVML_ERROR_NOT_SUPPORTED;
    if (index >= NODE_MAX_INSTANCES)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int place = nvml_node()->gpu_count; place < nvml_node()->place_count; place++) {
        const struct node_gpu *instance = &nvml_node()->gpus[place];
        if (instance->card == card && instance->instance == index && !book_is_ended(nvml_book(), place)) {
            *mig = nvml_handle_of(place);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
    const struct node_gpu *gpu;
    nvmlReturn_t found = nvml_find_place_description(device, is_mig, &gpu);
    if (found == NVML_SUCCESS)
        *is_mig = node_is_instance(gpu);
    return found;
}

/* Finds an instance; INVALID_ARGUMENT for a card. */
static nvmlReturn_t find_instance(nvmlDevice_t device, const void *output, const struct node_gpu **gpu) {
    nvmlReturn_t found = nvml_find_place_description(device, output, gpu);
    return found == NVML_SUCCESS && !node_is_instance(*gpu) ? NVML_ERROR_INVALID_ARGUMENT : found;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
    const struct node_gpu *gpu;
    nvmlReturn_t found = find_instance(mig, device, &gpu);
    if (found == NVML_SUCCESS)
        *device = nvml_handle_of(gpu->card);
    return found;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    const struct node_gpu *gpu;
    nvmlReturn_t found = find_instance(device, id, &gpu);
    if (found == NVML_SUCCESS)
        *id = node_gpu_instance_id(gpu);
    return found;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    const struct node_gpu *gpu;
    nvmlReturn_t found = find_instance(device, id, &gpu);
    if (found == NVML_SUCCESS)
        *id = 0; /* the one compute instance of the GPU instance */
    return found;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    const struct node_gpu *gpu;
    nvmlReturn_t found = nvml_find_place_description(device, attributes, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (!node_is_instance(gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = gpu->sm_count,
        .gpuInstanceSliceCount = gpu->slices,
        .computeInstanceSliceCount = gpu->slices,
        .memorySizeMB = gpu->memory_bytes >> 20,
    };
    return NVML_SUCCESS;
}
