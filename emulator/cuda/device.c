/* Devices: the GPUs of the node that are visible to this process. */
#include <stdio.h>
#include <string.h>

#include "cuda/context/context.h"
#include "cuda/driver.h"

CUresult cuDeviceGetCount(int *count) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!count)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *count = driver.device_count;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!device)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!driver_has_device(ordinal))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return driver_leave(CUDA_SUCCESS);
}

/* Enters and checks a device and an out parameter. */
static CUresult enter(CUdevice device, const void *result) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!result)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_has_device(device) ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    CUresult entered = enter(device, name);
    if (entered)
        return entered;
    if (size <= 0)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    snprintf(name, (size_t)size, "%s", driver_gpu(device)->model);
    return driver_leave(CUDA_SUCCESS);
}

static unsigned char hex(char digit) {
    return (unsigned char)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

static void read_uuid(const struct node_gpu *gpu, CUuuid *uuid) {
    const char *text = gpu->uuid + strlen("GPU-"); /* as long as MIG- */
    for (int i = 0; i < 16; i++) {
        text += *text == '-';
        uuid->bytes[i] = (char)(hex(text[0]) << 4 | hex(text[1]));
        text += 2;
    }
}

/* The first version names the card. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    CUresult entered = enter(device, uuid);
    if (entered)
        return entered;
    read_uuid(&driver.book.node.gpus[driver_gpu(device)->card], uuid);
    return driver_leave(CUDA_SUCCESS);
}

/* The second one names the MIG instance, where the device is one. */
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    CUresult entered = enter(device, uuid);
    if (entered)
        return entered;
    read_uuid(driver_gpu(device), uuid);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    CUresult entered = enter(device, bytes);
    if (entered)
        return entered;
    *bytes = driver_gpu(device)->memory_bytes - driver_gpu(device)->reserved_bytes;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device) {
    CUresult entered = enter(device, text);
    if (entered)
        return entered;
    if (size <= 0)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    const struct node_gpu *card = driver_gpu(device);
    snprintf(text, (size_t)size, "%04X:%02X:%02X.0", card->pci_domain, card->pci_bus, card->pci_device);
    return driver_leave(CUDA_SUCCESS);
}

static bool at_address(const struct node_gpu *card, const char *text) {
    unsigned domain = 0, bus, slot, function;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(text, "%x:%x.%x", &bus, &slot, &function) < 2)
            return false;
    }
    return card->pci_domain == domain && card->pci_bus == bus && card->pci_device == slot;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!device || !text)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (CUdevice each = 0; each < driver.device_count; each++) {
        if (at_address(driver_gpu(each), text)) {
            *device = each;
            return driver_leave(CUDA_SUCCESS);
        }
    }
    return driver_leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    CUresult entered = enter(device, major);
    if (entered)
        return entered;
    if (!minor)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *major = (int)driver_gpu(device)->compute_major;
    *minor = (int)driver_gpu(device)->compute_minor;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    CUresult entered = enter(device, can);
    if (entered)
        return entered;
    if (!driver_has_device(peer))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    *can = device != peer;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device,
                                 CUdevice peer) {
    CUresult entered = enter(device, value);
    if (entered)
        return entered;
    if (!driver_has_device(peer) || peer == device)
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    const struct node_link *link = &driver.book.node.links[driver.gpus[device]][driver.gpus[peer]];
    if (attribute == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)
        *value = link->nvlink_count ? 0 : 1;
    else if (attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)
        *value = link->nvlink_count > 0;
    else if (attribute >= CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK &&
             attribute <= CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED)
        *value = 1;
    else
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(CUDA_SUCCESS);
}

/* Peers reach each other without permission here. The calls only make the driver's checks. */
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (flags)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!object_is(peer, OBJECT_CONTEXT) || peer == context)
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (context->peers & 1u << peer->device)
        return driver_leave(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    context->peers |= 1u << peer->device;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    if (!object_is(peer, OBJECT_CONTEXT))
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (!(context->peers & 1u << peer->device))
        return driver_leave(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    context->peers &= ~(1u << peer->device);
    return driver_leave(CUDA_SUCCESS);
}
