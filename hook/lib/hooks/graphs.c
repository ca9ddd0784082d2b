/* Allocation nodes of graphs.
 *
 * A node, made by hand or captured from cuMemAllocAsync, has an address from the start, but no memory until
 * its graph is uploaded or launched. The driver then maps the missing memory from its own pool for graphs on
 * that GPU, shares it among graphs that cannot run at the same time, and keeps it until cuDeviceGraphMemTrim
 * (CUDA programming guide, "Graph memory nodes"). So that pool is charged what the driver has reserved for
 * it. Before a launch, it is charged the growth that this graph could cause: no more than the graph's own
 * nodes need.
 *
 * A launch cannot be undone. If other graphs' memory could have served but was not known to be free, the pool
 * is trimmed first, and only then is the launch refused.
 */
#include "memory/pools/pools.h"

#include "driver/driver.h"
#include "driver/gpus.h"
#include "memory/charge.h"
#include "memory/release.h"
#include "share/launch.h"

static bool may_allocate(void) {
    return __atomic_load_n(&plimsoll.graphs_allocate, __ATOMIC_ACQUIRE) && plimsoll_depth == 0;
}

/* --- executable graphs -----------------------------------------------------------------------------------
 */

/* The key of an executable graph's holding on one GPU: addresses end far below the bits of `gpu`. */
static uint64_t key_of(CUgraphExec exec, int gpu) {
    return (uintptr_t)exec ^ (uint64_t)gpu << 58;
}

static void remember(CUgraphExec exec, const struct plimsoll_ranges *ranges) {
    for (int gpu = 0; gpu < (int)plimsoll.gpu_count; gpu++) {
        uint64_t bytes = plimsoll_graph_needs_on(ranges, gpu);
        if (bytes == 0)
            continue;
        __atomic_fetch_add(&plimsoll.graphs_counted, 1, __ATOMIC_RELEASE);
        plimsoll_remember((struct plimsoll_holding){
            .key = key_of(exec, gpu), .bytes = bytes, .gpu = (int16_t)gpu, .kind = HELD_GRAPH});
    }
}

static void forget(CUgraphExec exec) {
    struct plimsoll_holding known;
    for (int gpu = 0; gpu < (int)plimsoll.gpu_count; gpu++)
        if (plimsoll_holdings_take(&plimsoll.holdings, HELD_GRAPH, key_of(exec, gpu), &known)) {
            __atomic_fetch_sub(&plimsoll.graphs_counted, 1, __ATOMIC_RELEASE);
            plimsoll_graph_pool_remove(gpu, known.bytes);
        }
}

static uint64_t need_of(CUgraphExec exec, int gpu) {
    struct plimsoll_holding known;
    bool is_known = plimsoll_holdings_get(&plimsoll.holdings, HELD_GRAPH, key_of(exec, gpu), &known);
    return is_known ? known.bytes : 0;
}

/* --- running them ----------------------------------------------------------------------------------------
 */

static void leave_all(const uint64_t needs[PLIMSOLL_MAX_GPUS], int end) {
    for (int gpu = 0; gpu < end; gpu++)
        if (needs[gpu] > 0)
            plimsoll_graph_pool_leave(gpu);
}

static CUresult enter_pools(const uint64_t needs[PLIMSOLL_MAX_GPUS], const char *function) {
    for (int gpu = 0; gpu < (int)plimsoll.gpu_count; gpu++)
        if (needs[gpu] > 0 && !plimsoll_graph_pool_enter(gpu, needs[gpu], function)) {
            leave_all(needs, gpu);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    return CUDA_SUCCESS;
}

static CUresult enter_all(const uint64_t needs[PLIMSOLL_MAX_GPUS], const char *function) {
    CUresult refusal = enter_pools(needs, function);
    plimsoll_depth += refusal == CUDA_SUCCESS;
    return refusal;
}

static CUresult leave_hook(const uint64_t needs[PLIMSOLL_MAX_GPUS], CUresult result) {
    leave_all(needs, (int)plimsoll.gpu_count);
    plimsoll_depth--;
    return result;
}

/* False: none of the graph's nodes takes memory. */
static bool find_needs(CUgraphExec exec, uint64_t needs[PLIMSOLL_MAX_GPUS]) {
    bool has_some = false;
    if (!plimsoll_is_attached())
        return false;
    for (int gpu = 0; gpu < (int)plimsoll.gpu_count; gpu++)
        has_some |= (needs[gpu] = need_of(exec, gpu)) > 0;
    return has_some;
}

/* Most programs have no graph that takes memory. Then a launch costs one more load. */
static inline bool counts_graphs(void) {
    return __atomic_load_n(&plimsoll.graphs_counted, __ATOMIC_ACQUIRE) > 0;
}

/* A launch into a stream that captures is recorded: nothing executes, and nothing waits. */
static bool takes_memory(CUgraphExec exec, CUstream stream, uint64_t needs[PLIMSOLL_MAX_GPUS]) {
    return counts_graphs() && may_allocate() && find_needs(exec, needs) && !plimsoll_is_capturing(stream);
}

/* Memory comes first: a launch that waits for memory is not counted as launching. */
#define LAUNCH(symbol, stream, ...)                                                                          \
    do {                                                                                                     \
        struct plimsoll_launch launch;                                                                       \
        uint64_t needs[PLIMSOLL_MAX_GPUS] = {0};                                                             \
        bool is_taking = takes_memory(hGraphExec, stream, needs);                                            \
        CUresult result = is_taking ? enter_pools(needs, #symbol) : CUDA_SUCCESS;                            \
        if (result != CUDA_SUCCESS)                                                                          \
            return result;                                                                                   \
        plimsoll_enter_launch(&launch, stream);                                                              \
        result = plimsoll_leave_launch(&launch, REAL(symbol)(__VA_ARGS__));                                  \
        leave_all(needs, is_taking ? (int)plimsoll.gpu_count : 0);                                           \
        return result;                                                                                       \
    } while (0)

/* A function of its own, because of its large stack frame. */
#define LAUNCHES(symbol, stream)                                                                             \
    __attribute__((noinline)) static CUresult held_##symbol(CUgraphExec hGraphExec, CUstream hStream) {      \
        LAUNCH(symbol, stream, hGraphExec, hStream);                                                         \
    }                                                                                                        \
    CUresult symbol(CUgraphExec hGraphExec, CUstream hStream) {                                              \
        if (!counts_graphs() && plimsoll_launch_passes())                                                    \
            return REAL(symbol)(hGraphExec, hStream);                                                        \
        return held_##symbol(hGraphExec, hStream);                                                           \
    }

LAUNCHES(cuGraphLaunch, hStream)
LAUNCHES(cuGraphLaunch_ptsz, plimsoll_per_thread(hStream))

#define RUN(symbol, stream, ...)                                                                             \
    do {                                                                                                     \
        uint64_t needs[PLIMSOLL_MAX_GPUS] = {0};                                                             \
        if (!takes_memory(hGraphExec, stream, needs))                                                        \
            return REAL(symbol)(__VA_ARGS__);                                                                \
        CUresult refusal = enter_all(needs, #symbol);                                                        \
        return refusal ? refusal : leave_hook(needs, REAL(symbol)(__VA_ARGS__));                             \
    } while (0)

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
    RUN(cuGraphUpload, hStream, hGraphExec, hStream);
}

CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
    RUN(cuGraphUpload_ptsz, plimsoll_per_thread(hStream), hGraphExec, hStream);
}

/* --- making and ending them ------------------------------------------------------------------------------
 */

static CUresult instantiated(CUresult result, const CUgraphExec *exec, struct plimsoll_ranges *ranges) {
    if (result == CUDA_SUCCESS)
        remember(*exec, ranges);
    for (int gpu = 0; result != CUDA_SUCCESS && gpu < (int)plimsoll.gpu_count; gpu++)
        plimsoll_graph_pool_remove(gpu, plimsoll_graph_needs_on(ranges, gpu));
    plimsoll_graph_needs_free(ranges);
    return result;
}

/* With `is_uploaded` the call itself maps the memory. */
static CUresult enter_upload(const struct plimsoll_ranges *ranges, bool is_uploaded, uint64_t needs[],
                             const char *function) {
    for (int gpu = 0; gpu < (int)plimsoll.gpu_count; gpu++) {
        uint64_t bytes = plimsoll_graph_needs_on(ranges, gpu);
        if (bytes > 0)
            plimsoll_graph_pool_add(gpu, bytes);
        needs[gpu] = is_uploaded ? bytes : 0;
    }
    return ranges->is_short ? CUDA_ERROR_OUT_OF_MEMORY : enter_all(needs, function);
}

#define INSTANTIATE(symbol, is_uploaded, ...)                                                                \
    do {                                                                                                     \
        struct plimsoll_charge charge;                                                                       \
        struct plimsoll_ranges ranges = {0};                                                                 \
        uint64_t needs[PLIMSOLL_MAX_GPUS] = {0};                                                             \
        if (!may_allocate() || !plimsoll_begin(&charge, #symbol))                                            \
            return REAL(symbol)(__VA_ARGS__);                                                                \
        plimsoll_graph_needs_add(&ranges, hGraph);                                                           \
        CUresult result = enter_upload(&ranges, is_uploaded, needs, #symbol);                                \
        if (result == CUDA_SUCCESS)                                                                          \
            result = leave_hook(needs, REAL(symbol)(__VA_ARGS__));                                           \
        return instantiated(result, phGraphExec, &ranges);                                                   \
    } while (0)

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                            char *logBuffer, size_t bufferSize) {
    INSTANTIATE(cuGraphInstantiate, false, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                               char *logBuffer, size_t bufferSize) {
    INSTANTIATE(cuGraphInstantiate_v2, false, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

#define IS_UPLOADED(flags) (((flags) & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0)

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags) {
    INSTANTIATE(cuGraphInstantiateWithFlags, IS_UPLOADED(flags), phGraphExec, hGraph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
    bool is_uploaded = instantiateParams && IS_UPLOADED(instantiateParams->flags);
    INSTANTIATE(cuGraphInstantiateWithParams, is_uploaded, phGraphExec, hGraph, instantiateParams);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
    bool is_uploaded = instantiateParams && IS_UPLOADED(instantiateParams->flags);
    INSTANTIATE(cuGraphInstantiateWithParams_ptsz, is_uploaded, phGraphExec, hGraph, instantiateParams);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
    if (may_allocate())
        forget(hGraphExec);
    return REAL(cuGraphExecDestroy)(hGraphExec);
}

/* --- nodes that allocate ---------------------------------------------------------------------------------
 */

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams) {
    plimsoll_graphs_allocate();
    return REAL(cuGraphAddMemAllocNode)(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

static void note_allocation(const CUgraphNodeParams *params) {
    if (params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        plimsoll_graphs_allocate();
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                        size_t numDependencies, CUgraphNodeParams *nodeParams) {
    note_allocation(nodeParams);
    return REAL(cuGraphAddNode)(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependencyData, size_t numDependencies,
                           CUgraphNodeParams *nodeParams) {
    note_allocation(nodeParams);
    return REAL(cuGraphAddNode_v2)(phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
                                   nodeParams);
}

CUresult cuGraphAddNode_v3(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependencyData, size_t numDependencies,
                           CUgraphNodeParams *nodeParams) {
    note_allocation(nodeParams);
    return REAL(cuGraphAddNode_v3)(phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
                                   nodeParams);
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    CUresult result = REAL(cuDeviceGraphMemTrim)(device);
    if (result == CUDA_SUCCESS && may_allocate())
        plimsoll_graph_pool_update(plimsoll_gpu_of_device(device));
    return result;
}
