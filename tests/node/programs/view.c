/* Prints what a container sees as one line of JSON: its variables, device files, the driver's GPUs by CUDA
 * and by NVML with their memory, and its user. It loads both libraries as programs do, so a missing one is
 * reported. */
#include <cuda.h>
#include <nvml.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_variable(const char *name, const char *before) {
    const char *value = getenv(name);
    printf(value ? "%s\"%s\": \"%s\"" : "%s\"%s\": null", before, name, value);
}

static void print_devices(void) {
    char path[32];
    const char *before = "";
    for (int i = 0; i < 16; i++) {
        snprintf(path, sizeof path, "/dev/nvidia%d", i);
        if (access(path, F_OK) == 0) {
            printf("%s\"%s\"", before, path);
            before = ", ";
        }
    }
}

static void *function(void *library, const char *name) {
    void *found = library ? dlsym(library, name) : NULL;
    if (library && !found)
        fprintf(stderr, "view: %s is missing\n", name);
    return found;
}

#define LOAD(library, name, symbol)                                                                          \
    __typeof__(&name) p_##name;                                                                              \
    *(void **)&p_##name = function(library, symbol)

static void print_cuda(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("null");
        return;
    }
    LOAD(library, cuInit, "cuInit");
    LOAD(library, cuDeviceGetCount, "cuDeviceGetCount");
    LOAD(library, cuDeviceGetUuid, "cuDeviceGetUuid");
    LOAD(library, cuDeviceTotalMem, "cuDeviceTotalMem_v2");
    int count = 0;
    CUresult result = p_cuInit(0);
    if (result == CUDA_SUCCESS)
        p_cuDeviceGetCount(&count);
    printf("{\"result\": %d, \"gpus\": [", (int)result);
    for (int i = 0; i < count; i++) {
        CUuuid uuid = {{0}};
        size_t total_bytes = 0;
        p_cuDeviceGetUuid(&uuid, i);
        p_cuDeviceTotalMem(&total_bytes, i);
        printf("%s{\"uuid\": \"GPU-", i ? ", " : "");
        for (int byte = 0; byte < 16; byte++)
            printf("%s%02x", byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-" : "",
                   (unsigned)(unsigned char)uuid.bytes[byte]);
        printf("\", \"total_bytes\": %zu}", total_bytes);
    }
    printf("]}");
}

static void print_nvml(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        printf("null");
        return;
    }
    LOAD(library, nvmlInit_v2, "nvmlInit_v2");
    LOAD(library, nvmlDeviceGetCount_v2, "nvmlDeviceGetCount_v2");
    LOAD(library, nvmlDeviceGetHandleByIndex_v2, "nvmlDeviceGetHandleByIndex_v2");
    LOAD(library, nvmlDeviceGetUUID, "nvmlDeviceGetUUID");
    LOAD(library, nvmlDeviceGetMemoryInfo, "nvmlDeviceGetMemoryInfo");
    unsigned count = 0;
    nvmlReturn_t result = p_nvmlInit_v2();
    if (result == NVML_SUCCESS)
        p_nvmlDeviceGetCount_v2(&count);
    printf("{\"result\": %d, \"gpus\": [", (int)result);
    for (unsigned i = 0; i < count; i++) {
        nvmlDevice_t device;
        nvmlMemory_t memory = {0};
        char uuid[80] = "";
        if (p_nvmlDeviceGetHandleByIndex_v2(i, &device) != NVML_SUCCESS)
            continue;
        p_nvmlDeviceGetUUID(device, uuid, sizeof uuid);
        p_nvmlDeviceGetMemoryInfo(device, &memory);
        printf("%s{\"uuid\": \"%s\", \"total_bytes\": %llu, \"used_bytes\": %llu}", i ? ", " : "", uuid,
               memory.total, memory.used);
    }
    printf("]}");
}

int main(void) {
    printf("{\"user\": %d, \"env\": {", (int)getuid());
    print_variable("NVIDIA_VISIBLE_DEVICES", "");
    print_variable("CUDA_VISIBLE_DEVICES", ", ");
    print_variable("LD_PRELOAD", ", ");
    printf("}, \"devices\": [");
    print_devices();
    printf("], \"cuda\": ");
    print_cuda();
    printf(", \"nvml\": ");
    print_nvml();
    printf("}\n");
    return 0;
}
