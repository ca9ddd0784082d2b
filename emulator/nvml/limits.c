/* Memory limits by control group, which drivers have from r615 on. An older library lacks the two functions;
 * this one answers as Python's bindings report that. */
#include "nvml/session.h"

#include <stdlib.h>
#include <unistd.h>

#include "book/cgroup.h"
#include "book/limits_api.h"

enum { FIRST_DRIVER = 615 };

/* The structures of r615's header, which is newer than the one used here. */
struct set_limits {
    const char *namespace;
    unsigned long long soft_bytes, hard_bytes;
};

struct get_limits {
    const char *namespace;
    unsigned long long soft_bytes, hard_bytes, used_bytes;
};

#pragma GCC visibility push(default)
nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, const struct set_limits *limits);
nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, struct get_limits *limits);
#pragma GCC visibility pop

static nvmlReturn_t find(nvmlDevice_t device, const void *limits, const char *const *namespace, int *gpu,
                         uint64_t *group) {
    if (nvml_is_initialized() && atoi(nvml_node()->driver) < FIRST_DRIVER)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    nvmlReturn_t found = nvml_find_present_gpu(device, limits, gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (nvml_node()->gpus[*gpu].is_mig)
        return NVML_ERROR_NOT_SUPPORTED;
    bool is_group = false;
    *group = *namespace ? cgroup_of(*namespace, &is_group) : 0;
    if (!*group)
        return NVML_ERROR_NOT_FOUND;
    return is_group ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, const struct set_limits *limits) {
    int gpu;
    uint64_t group;
    nvmlReturn_t found = find(device, limits, limits ? &limits->namespace : NULL, &gpu, &group);
    if (found != NVML_SUCCESS)
        return found;
    if (geteuid() != 0)
        return NVML_ERROR_NO_PERMISSION;
    if (limits->soft_bytes > limits->hard_bytes)
        return NVML_ERROR_INVALID_ARGUMENT;
    return book_set_limits(nvml_book(), gpu, group, limits->soft_bytes, limits->hard_bytes)
               ? NVML_SUCCESS
               : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, struct get_limits *limits) {
    int gpu;
    uint64_t group, soft_bytes, hard_bytes, used_bytes;
    nvmlReturn_t found = find(device, limits, limits ? &limits->namespace : NULL, &gpu, &group);
    if (found != NVML_SUCCESS)
        return found;
    book_get_limits(nvml_book(), gpu, group, &soft_bytes, &hard_bytes, &used_bytes);
    limits->soft_bytes = soft_bytes;
    limits->hard_bytes = hard_bytes;
    limits->used_bytes = used_bytes;
    return NVML_SUCCESS;
}
