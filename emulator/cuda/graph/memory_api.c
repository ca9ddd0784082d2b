/* Nodes that allocate and free, and the pools for graphs. */
#include "cuda/context/context.h"
#include "cuda/graph/memory.h"

/* Enters with a context and checks what every added node needs. */
static CUresult enter(CUgraph graph, const void *result, const CUgraphNode *dependencies, size_t count) {
    CUcontext context;
    CUresult entered = context_enter(&context);
    if (entered)
        return entered;
    bool good = object_is(graph, OBJECT_GRAPH) && result && graph_owns_all(graph, dependencies, count);
    return good ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *result, CUgraph graph, const CUgraphNode *dependencies,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    struct graph_allocation *allocation;
    CUresult outcome = enter(graph, result, dependencies, count);
    if (outcome)
        return outcome;
    outcome = params ? graph_memory_new(params, &allocation) : CUDA_ERROR_INVALID_VALUE;
    if (outcome)
        return driver_leave(outcome);
    CUgraphNode node = graph_add(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, dependencies, count);
    if (!node) {
        graph_memory_drop(allocation);
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    node->allocation = allocation;
    params->dptr = node->address = allocation->base;
    *result = node;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *result, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUdeviceptr address) {
    CUresult outcome = enter(graph, result, dependencies, count);
    if (outcome)
        return outcome;
    if (!graph_memory_at(address) || graph_memory_frees(graph, address))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    CUgraphNode node = graph_add(graph, CU_GRAPH_NODE_TYPE_MEM_FREE, dependencies, count);
    if (!node)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    node->address = address;
    *result = node;
    return driver_leave(CUDA_SUCCESS);
}

static bool is_of(CUgraphNode node, CUgraphNodeType type) {
    return object_is(node, OBJECT_NODE) && node->type == type;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!is_of(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC) || !params)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *params = node->allocation->params;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!driver_has_device(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    graph_memory_trim(device);
    return driver_leave(CUDA_SUCCESS);
}

/* Enters and finds the attribute; all attributes are cuuint64_t. */
static CUresult find(CUdevice device, CUgraphMem_attribute attribute, const void *value, size_t **figure) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!driver_has_device(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    *figure = value ? graph_memory_figure(device, attribute) : NULL;
    return *figure ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value) {
    size_t *figure;
    CUresult entered = find(device, attribute, value, &figure);
    if (entered)
        return entered;
    *(cuuint64_t *)value = *figure;
    return driver_leave(CUDA_SUCCESS);
}

/* High-water marks can be reset, only by zero. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value) {
    size_t *figure;
    CUresult entered = find(device, attribute, value, &figure);
    if (entered)
        return entered;
    bool is_high =
        attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    if (!is_high || *(const cuuint64_t *)value)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *figure = *graph_memory_figure(device, attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH
                                               ? CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT
                                               : CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    return driver_leave(CUDA_SUCCESS);
}
