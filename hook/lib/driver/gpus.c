#include "driver/gpus.h"

#include <string.h>

#include "broker/broker.h"
#include "driver/driver.h"

static int gpu_of_uuid(const unsigned char bytes[16]) {
    for (unsigned i = 0; i < plimsoll.gpu_count; i++)
        if (memcmp(plimsoll.gpus[i].uuid_bytes, bytes, 16) == 0)
            return (int)i;
    return GPU_UNLISTED;
}

int plimsoll_gpu_of_uuid_text(const char *uuid) {
    unsigned char bytes[16];
    return plimsoll_uuid_bytes(uuid, bytes) ? gpu_of_uuid(bytes) : GPU_UNLISTED;
}

/* NVML names cards by handle; the limits name them by UUID. */
int plimsoll_gpu_of_handle(nvmlDevice_t device) {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    if (CALLED(nvmlDeviceGetUUID)(device, uuid, sizeof(uuid)) != NVML_SUCCESS)
        return GPU_UNLISTED;
    return plimsoll_gpu_of_uuid_text(uuid);
}

/* `_v2` (CUDA 11.4) gives the MIG instance, whereas the first version gives the card it is cut from. */
static int ask_driver(CUdevice device) {
    CUuuid uuid;
    CUresult result = HAS(cuDeviceGetUuid_v2) ? CALLED(cuDeviceGetUuid_v2)(&uuid, device)
                                              : CALLED(cuDeviceGetUuid)(&uuid, device);
    if (result != CUDA_SUCCESS)
        return GPU_NONE; /* no such device: the program's call fails as well */
    unsigned char bytes[16];
    memcpy(bytes, uuid.bytes, sizeof(bytes));
    return gpu_of_uuid(bytes);
}

int plimsoll_gpu_of_device(CUdevice device) {
    if (device < 0 || device >= PLIMSOLL_DEVICES)
        return device < 0 ? GPU_NONE : ask_driver(device);
    int known = __atomic_load_n(&plimsoll.gpu_of_device[device], __ATOMIC_RELAXED);
    if (known)
        return known == 1 ? GPU_UNLISTED : known - 2;
    int gpu = ask_driver(device);
    if (gpu != GPU_NONE)
        __atomic_store_n(&plimsoll.gpu_of_device[device], gpu == GPU_UNLISTED ? 1 : gpu + 2,
                         __ATOMIC_RELAXED);
    return gpu;
}

uint64_t plimsoll_primary_of_gpu(int gpu) {
    return gpu < 0 ? 0 : __atomic_load_n(&plimsoll.contexts[gpu].primary, __ATOMIC_ACQUIRE);
}

/* GPU_UNLISTED means "not known" here: contexts on such GPUs are not remembered. */
int plimsoll_gpu_of_known_context(uint64_t context) {
    struct plimsoll_holding made;
    for (unsigned gpu = 0; gpu < plimsoll.gpu_count; gpu++)
        if (plimsoll_primary_of_gpu((int)gpu) == context)
            return (int)gpu;
    bool is_made = plimsoll_holdings_get(&plimsoll.holdings, HELD_CONTEXT, context, &made);
    return is_made ? made.gpu : GPU_UNLISTED;
}

bool plimsoll_is_known_context(uint64_t context) {
    return plimsoll_gpu_of_known_context(context) != GPU_UNLISTED;
}

CUdevice plimsoll_device_of_gpu(int gpu) {
    int count = 0;
    CALLED(cuDeviceGetCount)(&count);
    for (CUdevice device = 0; device < count; device++)
        if (plimsoll_gpu_of_device(device) == gpu)
            return device;
    return -1;
}

uint64_t plimsoll_owner_of(CUcontext context) {
    struct plimsoll_holding made;
    bool is_green = __atomic_load_n(&plimsoll.greens_made, __ATOMIC_RELAXED) &&
                    plimsoll_holdings_get(&plimsoll.holdings, HELD_CONTEXT, (uintptr_t)context, &made) &&
                    made.with != 0;
    return is_green ? made.with : (uintptr_t)context;
}

uint64_t plimsoll_current_context(void) {
    CUcontext context = NULL;
    return CALLED(cuCtxGetCurrent)(&context) == CUDA_SUCCESS ? plimsoll_owner_of(context) : 0;
}

bool plimsoll_device_of_context(uint64_t context, CUdevice *device) {
    CUcontext popped;
    if (plimsoll_current_context() == context)
        return CALLED(cuCtxGetDevice)(device) == CUDA_SUCCESS;
    if (CALLED(cuCtxPushCurrent_v2)((CUcontext)(uintptr_t)context) != CUDA_SUCCESS)
        return false;
    bool is_known = CALLED(cuCtxGetDevice)(device) == CUDA_SUCCESS;
    CALLED(cuCtxPopCurrent_v2)(&popped);
    return is_known;
}

/* The legacy default stream cannot capture, and a query about it would disturb a stream that does. */
bool plimsoll_is_capturing(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return stream && stream != CU_STREAM_LEGACY && HAS(cuStreamIsCapturing) &&
           CALLED(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUstream plimsoll_per_thread(CUstream stream) {
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN (CUDA 13.5) is part of a device, whose ordinal is the first
 * byte of the union. The headers of CUDA 12 have neither name. */
#define LOCALITY_DOMAIN 6

int plimsoll_gpu_of_location(const CUmemLocation *location) {
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        return plimsoll_gpu_of_device(location->id);
    if ((int)location->type == LOCALITY_DOMAIN)
        return plimsoll_gpu_of_device(location->id & 0xff);
    return GPU_NONE;
}
