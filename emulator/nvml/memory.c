/* The memory of a GPU, and the processes that hold it.
 *
 * Invariants: a dead process is in no list and holds nothing, because the book is swept before each
 * reading. Memory info v1 counts the driver's reserved bytes as used; v2 shows them apart. Both add up to
 * the total, as in drivers since 510. */
#include "nvml/session.h"

#include <string.h>

static const unsigned NO_MIG_INSTANCE = 0xffffffffu;

/* BAR1 maps the whole card on current servers; one page table is in use from the start. */
static const unsigned long long BAR1_USED_BYTES = 1ull << 20;

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, memory, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    memory->total = nvml_node()->gpus[gpu].memory_bytes;
    memory->free = book_free_bytes(nvml_book(), gpu);
    memory->used = memory->total - memory->free;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, memory, &gpu);
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

/* Keeps only the processes that NVML lists: those with a context and a pid in the caller's namespace. */
static unsigned keep_listed(struct book_snapshot *snapshot) {
    unsigned kept = 0;
    for (uint32_t i = 0; i < snapshot->process_count; i++)
        if (snapshot->processes[i].contexts && snapshot->processes[i].pid)
            snapshot->processes[kept++] = snapshot->processes[i];
    snapshot->process_count = kept;
    return kept;
}

/* The checks of every version of the list. On SUCCESS the caller's array has room for all processes of
 * `snapshot`. */
static nvmlReturn_t start_list(nvmlDevice_t device, unsigned *count, const void *infos,
                               struct book_snapshot *snapshot) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, count, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (*count && !infos)
        return NVML_ERROR_INVALID_ARGUMENT;
    book_look(nvml_book(), gpu, snapshot);
    bool fits = keep_listed(snapshot) <= *count;
    *count = snapshot->process_count;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                  nvmlProcessInfo_v1_t *infos) {
    struct book_snapshot snapshot;
    nvmlReturn_t started = start_list(device, count, infos, &snapshot);
    for (uint32_t i = 0; started == NVML_SUCCESS && i < snapshot.process_count; i++)
        infos[i] = (nvmlProcessInfo_v1_t){
            .pid = snapshot.processes[i].pid,
            .usedGpuMemory = snapshot.processes[i].used_bytes,
        };
    return started;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_t *infos) {
    struct book_snapshot snapshot;
    nvmlReturn_t started = start_list(device, count, infos, &snapshot);
    for (uint32_t i = 0; started == NVML_SUCCESS && i < snapshot.process_count; i++)
        infos[i] = (nvmlProcessInfo_t){
            .pid = snapshot.processes[i].pid,
            .usedGpuMemory = snapshot.processes[i].used_bytes,
            .gpuInstanceId = NO_MIG_INSTANCE,
            .computeInstanceId = NO_MIG_INSTANCE,
        };
    return started;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_v2_t *infos) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
}

/* Returns an empty list: the emulator has no graphics and no MPS server. */
static nvmlReturn_t give_empty_list(nvmlDevice_t device, unsigned *count) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, count, &gpu);
    if (found == NVML_SUCCESS)
        *count = 0;
    return found;
}

#define EMPTY_LIST(function, type)                                                                           \
    nvmlReturn_t function(nvmlDevice_t device, unsigned *count, type *infos) {                               \
        (void)infos;                                                                                         \
        return give_empty_list(device, count);                                                               \
    }

EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

/* Modes of nvmlProcessDetailList_t, which the header describes without constants. */
enum { MODE_COMPUTE, MODE_GRAPHICS, MODE_MPS };

static nvmlReturn_t fill_details(nvmlDevice_t device, nvmlProcessDetailList_t *list) {
    struct book_snapshot snapshot;
    nvmlReturn_t started = start_list(device, &list->numProcArrayEntries, list->procArray, &snapshot);
    for (uint32_t i = 0; started == NVML_SUCCESS && i < snapshot.process_count; i++)
        list->procArray[i] = (nvmlProcessDetail_v1_t){
            .pid = snapshot.processes[i].pid,
            .usedGpuMemory = snapshot.processes[i].used_bytes,
            .gpuInstanceId = NO_MIG_INSTANCE,
            .computeInstanceId = NO_MIG_INSTANCE,
        };
    return started;
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, list, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (list->version != nvmlProcessDetailList_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (list->mode > MODE_MPS)
        return NVML_ERROR_INVALID_ARGUMENT;
    return list->mode == MODE_COMPUTE ? fill_details(device, list)
                                      : give_empty_list(device, &list->numProcArrayEntries);
}
