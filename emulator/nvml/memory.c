/* The memory of a GPU, and the processes that hold it.
 *
 * Invariants: a dead process is in no list and holds nothing, because the book is swept before each
 * reading. Memory info v1 counts the driver's reserved bytes as used; v2 shows them apart. Both add up to
 * the total, as in drivers since 510. */
#include "nvml/session.h"

#include <stddef.h>
#include <string.h>

/* BAR1 maps the whole card on current servers; one page table is in use from the start. */
static const unsigned long long BAR1_USED_BYTES = 1ull << 20;

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_place(device, memory, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    memory->total = nvml_node()->gpus[gpu].memory_bytes;
    memory->free = book_free_bytes(nvml_book(), gpu);
    memory->used = memory->total - memory->free;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_place(device, memory, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memory->total = nvml_node()->gpus[gpu].memory_bytes;
    memory->reserved = nvml_node()->gpus[gpu].reserved_bytes;
    memory->free = book_free_bytes(nvml_book(), gpu);
    memory->used = memory->total - memory->reserved - memory->free;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, memory, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    memory->bar1Total = nvml_node()->gpus[gpu].memory_bytes;
    memory->bar1Used = BAR1_USED_BYTES;
    memory->bar1Free = memory->bar1Total - memory->bar1Used;
    return NVML_SUCCESS;
}

/* Keeps only the processes that NVML lists: those with a context and a pid in the caller's namespace. Clients
 * of an MPS server have a list of their own. The server is in the list of compute processes. */
static unsigned keep_listed(struct book_snapshot *snapshot, bool are_mps_clients) {
    unsigned kept = 0;
    for (uint32_t i = 0; i < snapshot->process_count; i++)
        if (snapshot->processes[i].contexts && snapshot->processes[i].pid &&
            snapshot->processes[i].is_mps_client == are_mps_clients)
            snapshot->processes[kept++] = snapshot->processes[i];
    snapshot->process_count = kept;
    return kept;
}

/* Modes of nvmlProcessDetailList_t, which the header describes without constants. */
enum { MODE_COMPUTE, MODE_GRAPHICS, MODE_MPS };

_Static_assert(offsetof(nvmlProcessDetail_v1_t, computeInstanceId) ==
                   offsetof(nvmlProcessInfo_t, computeInstanceId),
               "a detail does not begin as an info does");

/* Lists processes in entries of `entry_bytes`. The entries of older lists are shorter, and begin as the
 * newest do. The lists of graphics are empty. */
static nvmlReturn_t give_list(const char *function, nvmlDevice_t device, unsigned mode, unsigned *count,
                              void *entries, size_t entry_bytes) {
    struct book_snapshot snapshot;
    int gpu;
    nvmlReturn_t found = nvml_find_present_place_for(function, device, count, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    unsigned room = mode == MODE_GRAPHICS ? 0 : *count;
    if (room && !entries)
        return NVML_ERROR_INVALID_ARGUMENT;
    snapshot.process_count = 0;
    if (mode != MODE_GRAPHICS)
        book_look(nvml_book(), gpu, &snapshot);
    *count = keep_listed(&snapshot, mode == MODE_MPS);
    if (*count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) {
        const nvmlProcessDetail_v1_t whole = {
            .pid = snapshot.processes[i].pid,
            .usedGpuMemory = snapshot.processes[i].used_bytes,
            .gpuInstanceId = nvml_gpu_instance_id(snapshot.processes[i].gpu),
            .computeInstanceId = nvml_compute_instance_id(snapshot.processes[i].gpu),
        };
        memcpy((char *)entries + i * entry_bytes, &whole, entry_bytes);
    }
    return NVML_SUCCESS;
}

#define LIST(function, type, mode)                                                                           \
    nvmlReturn_t function(nvmlDevice_t device, unsigned *count, type *entries) {                             \
        return give_list(#function, device, mode, count, entries, sizeof *entries);                          \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, MODE_COMPUTE)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, MODE_COMPUTE)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, MODE_COMPUTE)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, MODE_GRAPHICS)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, MODE_GRAPHICS)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, MODE_GRAPHICS)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, MODE_MPS)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, MODE_MPS)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, MODE_MPS)

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_place(device, list, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (list->version != nvmlProcessDetailList_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (list->mode > MODE_MPS)
        return NVML_ERROR_INVALID_ARGUMENT;
    return give_list(__func__, device, list->mode, &list->numProcArrayEntries, list->procArray,
                     sizeof *list->procArray);
}
