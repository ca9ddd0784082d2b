/* Events: a program registers cards and kinds in a set, then waits on the set.
 *
 * Invariants: a set delivers an event once, in the order of the book, and no event from before its
 * registration. A waiting thread sleeps on the book's futex. Several threads may wait on one set; each
 * event goes to one of them. The book's tool injects events. It can inject ECC kinds too, though no ECC
 * counters exist. */
#include "nvml/session.h"

#include <stdatomic.h>
#include <stdlib.h>

static const unsigned long long SUPPORTED_TYPES =
    nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError;

struct registration {
    _Atomic uint64_t types;
    _Atomic uint64_t since; /* the book's cursor at registration */
};

struct nvmlEventSet_st {
    _Atomic uint64_t cursor; /* the last event of the book that this set has passed */
    struct registration gpus[NODE_MAX_GPUS];
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    if (!nvml_is_initialized())
        return NVML_ERROR_UNINITIALIZED;
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct nvmlEventSet_st *created = calloc(1, sizeof *created);
    if (!created)
        return NVML_ERROR_MEMORY;
    atomic_store(&created->cursor, book_event_cursor(nvml_book()));
    *set = created;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    if (!nvml_is_initialized())
        return NVML_ERROR_UNINITIALIZED;
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, types, &gpu);
    if (found == NVML_SUCCESS)
        *types = SUPPORTED_TYPES;
    return found;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    int gpu;
    nvmlReturn_t found = nvml_find_present_gpu(device, set, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (types & ~(unsigned long long)nvmlEventTypeAll)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (types & ~SUPPORTED_TYPES)
        return NVML_ERROR_NOT_SUPPORTED;
    /* A second registration adds kinds. It must not skip undelivered events of the first one. */
    if (!atomic_load(&set->gpus[gpu].types))
        atomic_store(&set->gpus[gpu].since, book_event_cursor(nvml_book()));
    atomic_fetch_or(&set->gpus[gpu].types, types);
    return NVML_SUCCESS;
}

static bool is_wanted(const struct book_event *event, void *closure) {
    const struct nvmlEventSet_st *set = closure;
    int card = nvml_node()->gpus[event->gpu % NODE_MAX_GPUS].card;
    const struct registration *gpu = &set->gpus[card];
    return (atomic_load(&gpu->types) & event->type) && event->sequence > atomic_load(&gpu->since);
}

static bool has_lost_gpu(const struct nvmlEventSet_st *set) {
    for (int gpu = 0; gpu < nvml_node()->gpu_count; gpu++)
        if (atomic_load(&set->gpus[gpu].types) && book_is_lost(nvml_book(), gpu))
            return true;
    return false;
}

/* Takes the set's next event. If another thread was quicker, waits for the next one. */
static bool take(struct nvmlEventSet_st *set, uint64_t deadline_ns, struct book_event *event) {
    bool found, mine;
    do {
        uint64_t seen = atomic_load(&set->cursor), cursor = seen, now_ns = book_now_ns();
        uint64_t left_ms = deadline_ns > now_ns ? (deadline_ns - now_ns + 999999) / 1000000 : 0;
        found = book_next_event(nvml_book(), &cursor, is_wanted, set, (unsigned)left_ms, event);
        mine = !found || atomic_compare_exchange_strong(&set->cursor, &seen, cursor);
    } while (!mine);
    return found;
}

static nvmlReturn_t wait_for_event(nvmlEventSet_t set, const void *data, unsigned timeout_ms,
                                   struct book_event *event) {
    if (!nvml_is_initialized())
        return NVML_ERROR_UNINITIALIZED;
    if (!set || !data)
        return NVML_ERROR_INVALID_ARGUMENT;
    uint64_t start_ns = book_now_ns();
    uint64_t deadline_ns = has_lost_gpu(set) ? start_ns : start_ns + timeout_ms * 1000000ull;
    if (take(set, deadline_ns, event))
        return NVML_SUCCESS;
    return has_lost_gpu(set) ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_TIMEOUT;
}

/* The first version's struct ended after eventData, so nothing past it is written. */
static void fill(const struct book_event *event, nvmlEventData_t *data) {
    data->device = nvml_handle_of(nvml_node()->gpus[event->gpu].card);
    data->eventType = event->type;
    data->eventData = event->data;
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    struct book_event event;
    nvmlReturn_t waited = wait_for_event(set, data, timeout_ms, &event);
    if (waited == NVML_SUCCESS)
        fill(&event, data);
    return waited;
}

/* The numbers of the instance that the event is about, if it is about one. */
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    struct book_event event;
    nvmlReturn_t waited = wait_for_event(set, data, timeout_ms, &event);
    if (waited != NVML_SUCCESS)
        return waited;
    fill(&event, data);
    data->gpuInstanceId = nvml_gpu_instance_id(event.gpu);
    data->computeInstanceId = nvml_compute_instance_id(event.gpu);
    return NVML_SUCCESS;
}
