/* The GPUs of the node and their identity: handles, names, PCI addresses, architecture.
 *
 * These values do not change while the library is initialised, so no function here takes a lock. */
#include "nvml/getter.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The PCI id of every emulated GPU: the node file names models, not PCI ids. The id belongs to no product;
 * its low half is NVIDIA's vendor id. */
static const unsigned EMULATED_PCI_ID = 0xfff010deu;
static const unsigned PCI_CLASS_DISPLAY = 3, PCI_SUBCLASS_3D = 2;

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    if (!nvml_is_initialized())
        return NVML_ERROR_UNINITIALIZED;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = (unsigned)nvml_node()->shown_count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned *count) {
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    if (!nvml_is_initialized())
        return NVML_ERROR_UNINITIALIZED;
    if (!device || index >= (unsigned)nvml_node()->shown_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = nvml_handle_of(nvml_node()->shown[index]);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

typedef bool matcher(const struct node_gpu *gpu, const void *wanted);

/* Finds the first of the GPUs below `end` that matches and that this process sees. */
static nvmlReturn_t find_handle(matcher *matches, const void *wanted, int end, nvmlDevice_t *device) {
    int found;
    if (!wanted || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int place = 0; place < end; place++) {
        if (matches(&nvml_node()->gpus[place], wanted) &&
            nvml_find_place(nvml_handle_of(place), wanted, &found) == NVML_SUCCESS) {
            *device = nvml_handle_of(place);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t find_card(matcher *matches, const void *wanted, nvmlDevice_t *device) {
    return nvml_is_initialized() ? find_handle(matches, wanted, nvml_node()->gpu_count, device)
                                 : NVML_ERROR_UNINITIALIZED;
}

/* Finds a card or a MIG instance. */
static nvmlReturn_t find_named(matcher *matches, const void *wanted, nvmlDevice_t *device) {
    return nvml_is_initialized() ? find_handle(matches, wanted, nvml_node()->place_count, device)
                                 : NVML_ERROR_UNINITIALIZED;
}

static bool has_uuid(const struct node_gpu *gpu, const void *wanted) {
    return strcmp(gpu->uuid, wanted) == 0;
}

static bool has_uuid_bytes(const struct node_gpu *gpu, const void *wanted) {
    const unsigned char *bytes = wanted;
    const char *text = gpu->uuid + strlen("GPU-"); /* as long as MIG- */
    for (int i = 0; i < NVML_DEVICE_UUID_BINARY_LEN; i++, text += 2) {
        unsigned byte;
        text += *text == '-';
        if (sscanf(text, "%2x", &byte) != 1 || byte != bytes[i])
            return false;
    }
    return true;
}

struct pci_address {
    unsigned domain, bus, device;
};

static bool has_address(const struct node_gpu *gpu, const void *wanted) {
    const struct pci_address *address = wanted;
    return gpu->pci_domain == address->domain && gpu->pci_bus == address->bus &&
           gpu->pci_device == address->device;
}

/* Parses a PCI address. In NVML the domain and the function are optional: 00000000:17:00.0, 0000:17:00.0,
 * 17:00.0, 17:00. */
static bool read_address(const char *text, struct pci_address *address) {
    static const char *const forms[] = {"%x:%x:%x.%x%n", "%x:%x:%x%n"};
    unsigned function;
    int used = 0;
    if (sscanf(text, forms[0], &address->domain, &address->bus, &address->device, &function, &used) == 4 ||
        sscanf(text, forms[1], &address->domain, &address->bus, &address->device, &used) == 3)
        return used && !text[used];
    address->domain = 0;
    if (sscanf(text, "%x:%x.%x%n", &address->bus, &address->device, &function, &used) == 3 ||
        sscanf(text, "%x:%x%n", &address->bus, &address->device, &used) == 2)
        return used && !text[used];
    return false;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    return find_named(has_uuid, uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device) {
    if (!nvml_is_initialized())
        return NVML_ERROR_UNINITIALIZED;
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (uuid->version != nvmlUUID_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (uuid->type == NVML_UUID_TYPE_ASCII)
        return find_named(has_uuid, uuid->value.str, device);
    if (uuid->type == NVML_UUID_TYPE_BINARY)
        return find_named(has_uuid_bytes, uuid->value.bytes, device);
    return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    struct pci_address address;
    if (!nvml_is_initialized())
        return NVML_ERROR_UNINITIALIZED;
    if (!bus_id || !read_address(bus_id, &address))
        return NVML_ERROR_INVALID_ARGUMENT;
    return find_card(has_address, &address, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

static nvmlBrandType_t brand_of(const struct node_gpu *gpu) {
    /* The first entry that a model's name contains decides, so longer entries come first. */
    static const struct {
        const char *part;
        nvmlBrandType_t brand;
    } brands[] = {
        {"GeForce", NVML_BRAND_GEFORCE}, {"Quadro RTX", NVML_BRAND_QUADRO_RTX},
        {"Quadro", NVML_BRAND_QUADRO},   {"TITAN", NVML_BRAND_TITAN},
        {"Tesla", NVML_BRAND_TESLA},     {"RTX", NVML_BRAND_NVIDIA_RTX},
        {"NVIDIA", NVML_BRAND_NVIDIA},   {"", NVML_BRAND_UNKNOWN},
    };
    size_t i = 0;
    while (!strstr(gpu->model, brands[i].part))
        i++;
    return brands[i].brand;
}

static nvmlDeviceArchitecture_t architecture_of(const struct node_gpu *gpu) {
    switch (gpu->compute_major) {
    case 3:
        return NVML_DEVICE_ARCH_KEPLER;
    case 5:
        return NVML_DEVICE_ARCH_MAXWELL;
    case 6:
        return NVML_DEVICE_ARCH_PASCAL;
    case 7:
        return gpu->compute_minor < 5 ? NVML_DEVICE_ARCH_VOLTA : NVML_DEVICE_ARCH_TURING;
    case 8:
        return gpu->compute_minor < 9 ? NVML_DEVICE_ARCH_AMPERE : NVML_DEVICE_ARCH_ADA;
    case 9:
        return NVML_DEVICE_ARCH_HOPPER;
    case 10:
    case 11:
    case 12:
        return NVML_DEVICE_ARCH_BLACKWELL;
    default:
        return NVML_DEVICE_ARCH_UNKNOWN;
    }
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    const struct node_gpu *gpu;
    nvmlReturn_t found = nvml_find_description(device, major && minor ? major : NULL, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    *major = (int)gpu->compute_major;
    *minor = (int)gpu->compute_minor;
    return NVML_SUCCESS;
}

/* FP32 cores per multiprocessor, from the CUDA programming guide's table of arithmetic throughput. */
static unsigned cores_per_multiprocessor(const struct node_gpu *gpu) {
    unsigned capability = gpu->compute_major * 10 + gpu->compute_minor;
    if (capability < 50)
        return 192;
    return capability == 60 || (capability >= 70 && capability <= 80) ? 64 : 128;
}

static unsigned minor_of(const struct node_gpu *gpu) {
    return (unsigned)(gpu - nvml_node()->gpus);
}

/* The place among the GPUs that this process sees; of a MIG instance, the place on its card. */
static unsigned index_of(const struct node_gpu *gpu) {
    unsigned index = 0;
    if (node_is_instance(gpu))
        return gpu->instance;
    while (nvml_node()->shown[index] != (int)minor_of(gpu))
        index++;
    return index;
}

TEXT(nvmlDeviceGetName, gpu->model)
TEXT(nvmlDeviceGetUUID, gpu->uuid)
CONSTANT(nvmlDeviceGetMinorNumber, unsigned, minor_of(gpu)) /* /dev/nvidia0 is the node file's first GPU */
CONSTANT(nvmlDeviceGetBrand, nvmlBrandType_t, brand_of(gpu))
CONSTANT(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, architecture_of(gpu))
CONSTANT(nvmlDeviceGetNumGpuCores, unsigned, gpu->sm_count *cores_per_multiprocessor(gpu))

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    const struct node_gpu *gpu;
    nvmlReturn_t found = nvml_find_place_description(device, index, &gpu);
    if (found == NVML_SUCCESS)
        *index = index_of(gpu);
    return found;
}

static void fill_bus_id(const struct node_gpu *gpu, char text[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE]) {
    snprintf(text, NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE, NVML_DEVICE_PCI_BUS_ID_FMT, gpu->pci_domain,
             gpu->pci_bus, gpu->pci_device);
}

void nvml_fill_pci(const struct node_gpu *gpu, nvmlPciInfo_t *pci) {
    *pci = (nvmlPciInfo_t){
        .domain = gpu->pci_domain,
        .bus = gpu->pci_bus,
        .device = gpu->pci_device,
        .pciDeviceId = EMULATED_PCI_ID,
        .pciSubSystemId = EMULATED_PCI_ID,
    };
    /* The legacy form has 16 bits for the domain. */
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT,
             gpu->pci_domain & 0xffff, gpu->pci_bus & 0xff, gpu->pci_device & 0xff);
    fill_bus_id(gpu, pci->busId);
}

/* Callers compiled against an older header pass a shorter struct, so at most `size` bytes are written. */
static nvmlReturn_t give_pci(nvmlDevice_t device, nvmlPciInfo_t *pci, size_t size) {
    const struct node_gpu *gpu;
    nvmlPciInfo_t whole;
    nvmlReturn_t found = nvml_find_description(device, pci, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    nvml_fill_pci(gpu, &whole);
    memcpy(pci, &whole, size);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return give_pci(device, pci, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return give_pci(device, pci, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return give_pci(device, pci, sizeof *pci);
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci) {
    const struct node_gpu *gpu;
    nvmlReturn_t found = nvml_find_description(device, pci, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (pci->version != nvmlPciInfoExt_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *pci = (nvmlPciInfoExt_t){
        .version = nvmlPciInfoExt_v1,
        .domain = gpu->pci_domain,
        .bus = gpu->pci_bus,
        .device = gpu->pci_device,
        .pciDeviceId = EMULATED_PCI_ID,
        .pciSubSystemId = EMULATED_PCI_ID,
        .baseClass = PCI_CLASS_DISPLAY,
        .subClass = PCI_SUBCLASS_3D,
    };
    fill_bus_id(gpu, pci->busId);
    return NVML_SUCCESS;
}
