#include "cuda/graph/allocation.h"

#include "cuda/memory/memory.h"

struct graph_allocation *graph_memory_at(uint64_t address) {
    const struct allocation *found = memory_find(address);
    return found && found->kind == MEMORY_GRAPH && found->base == address ? found->graph : NULL;
}

CUresult graph_memory_new(const CUDA_MEM_ALLOC_NODE_PARAMS *params, struct graph_allocation **result) {
    const CUmemPoolProps *props = &params->poolProps;
    if (!params->bytesize || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || props->handleTypes ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !driver_has_device(props->location.id) ||
        params->accessDescCount > NODE_MAX_GPUS || (params->accessDescCount && !params->accessDescs))
        return CUDA_ERROR_INVALID_VALUE;
    struct graph_allocation *allocation = calloc(1, sizeof *allocation);
    struct allocation row = {.base = params->bytesize >> 46 ? 0 : memory_back(params->bytesize),
                             .size = params->bytesize,
                             .kind = MEMORY_GRAPH,
                             .gpu = driver.gpus[props->location.id],
                             .device = props->location.id,
                             .graph = allocation};
    if (!allocation || !row.base || !memory_add(&row)) {
        if (row.base)
            memory_unback(row.base, row.size);
        free(allocation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation->base = row.base;
    allocation->uses = 1;
    allocation->params = *params;
    allocation->params.dptr = row.base;
    for (size_t i = 0; i < params->accessDescCount; i++)
        allocation->access[i] = params->accessDescs[i];
    allocation->params.accessDescs = params->accessDescCount ? allocation->access : NULL;
    *result = allocation;
    return CUDA_SUCCESS;
}

void graph_memory_use(struct graph_allocation *allocation) {
    allocation->uses++;
}

void graph_memory_drop(struct graph_allocation *allocation) {
    if (--allocation->uses)
        return;
    memory_release(memory_find(allocation->base));
    free(allocation);
}
