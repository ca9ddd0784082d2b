#include "cuda/graph/memory.h"

#include "book/timeline.h"
#include "cuda/context/context.h"
#include "cuda/memory/memory.h"
#include "cuda/stream/queue.h"
#include "cuda/stream/stream.h"

enum { ALIGNMENT = 512 };

/* The part of the pools that one executable graph holds. It outlives the graph while one of its
 * allocations is live. */
struct graph_holding {
    struct graph_holding *next;
    CUgraphExec exec;                   /* NULL = destroyed */
    size_t mapped_bytes[NODE_MAX_GPUS]; /* by device, in whole granules */
    size_t live_bytes[NODE_MAX_GPUS];
    unsigned live;
    CUstream stream; /* stream of the latest launch; may be destroyed */
    uint64_t mark;   /* mark of that launch's last work */
    int gpu;         /* the GPU whose timeline has the mark */
    bool is_queued;  /* that launch waited for a host function, so its mark is unknown */
};

static struct graph_holding *first; /* lock */
static struct {
    size_t reserved_bytes, reserved_high_bytes;
    size_t used_bytes, used_high_bytes; /* used_bytes is as of the last query */
} pools[NODE_MAX_GPUS];                 /* lock; by device */

/* Bytes that a holding has beyond its live allocations. */
static size_t surplus_of(const struct graph_holding *holding, CUdevice device) {
    return holding->mapped_bytes[device] - memory_round_up(holding->live_bytes[device], MEMORY_GRANULE);
}

static bool is_running(const struct graph_holding *holding) {
    uint64_t due_ns;
    if (holding->is_queued && object_is(holding->stream, OBJECT_STREAM))
        return !queue_is_done(holding->stream);
    return !timeline_reached(&driver.book, holding->gpu, holding->mark, &due_ns);
}

/* Takes back all memory that is not live from destroyed graphs whose last launch has ended. */
static void settle(void) {
    for (struct graph_holding **link = &first; *link;) {
        struct graph_holding *holding = *link;
        bool is_over = !holding->exec && !is_running(holding);
        for (CUdevice device = 0; is_over && device < driver.device_count; device++)
            holding->mapped_bytes[device] -= surplus_of(holding, device);
        if (is_over && !holding->live) {
            *link = holding->next;
            free(holding);
        } else
            link = &holding->next;
    }
}

static size_t used_of(CUdevice device) {
    size_t bytes = 0;
    settle();
    for (const struct graph_holding *holding = first; holding; holding = holding->next)
        bytes += holding->mapped_bytes[device];
    return bytes;
}

static CUdevice device_of(const struct graph_allocation *allocation) {
    return allocation->params.poolProps.location.id;
}

static size_t size_of(const struct graph_allocation *allocation) {
    return memory_round_up(allocation->params.bytesize, ALIGNMENT);
}

static void begin(struct graph_allocation *allocation, struct graph_holding *holding) {
    allocation->holder = holding;
    holding->live++;
    holding->live_bytes[device_of(allocation)] += size_of(allocation);
    graph_memory_use(allocation);
}

CUresult graph_memory_free(struct graph_allocation *allocation) {
    struct graph_holding *holding = allocation->holder;
    if (!holding)
        return CUDA_ERROR_INVALID_VALUE;
    allocation->holder = NULL;
    holding->live--;
    holding->live_bytes[device_of(allocation)] -= size_of(allocation);
    graph_memory_drop(allocation);
    return CUDA_SUCCESS;
}

static size_t need_of(CUgraph graph, CUdevice device) {
    size_t bytes = 0;
    for (CUgraphNode node = graph->first; node; node = node->next)
        if (node->allocation && device_of(node->allocation) == device)
            bytes += size_of(node->allocation);
    return memory_round_up(bytes, MEMORY_GRANULE);
}

static struct graph_holding *holding_of(CUgraphExec exec) {
    struct graph_holding *holding = first;
    while (holding && holding->exec != exec)
        holding = holding->next;
    if (holding)
        return holding;
    holding = calloc(1, sizeof *holding);
    if (!holding)
        return NULL;
    holding->exec = exec;
    holding->next = first;
    return first = holding;
}

/* Takes mapped memory from graphs that cannot run at the same time: graphs that are done, and graphs of
 * the same stream. Those graphs map memory anew at their next launch. */
static size_t take_from_others(const struct graph_holding *taker, CUdevice device, size_t bytes,
                               CUstream stream) {
    size_t taken = 0;
    for (struct graph_holding *other = first; other && taken < bytes; other = other->next) {
        if (other == taker || !surplus_of(other, device) || (other->stream != stream && is_running(other)))
            continue;
        size_t surplus = surplus_of(other, device);
        size_t part = surplus < bytes - taken ? surplus : bytes - taken;
        other->mapped_bytes[device] -= part;
        taken += part;
    }
    return taken;
}

static bool map(struct graph_holding *holding, CUdevice device, CUstream stream) {
    size_t need = need_of(holding->exec->graph, device);
    if (need <= holding->mapped_bytes[device])
        return true;
    size_t missing = need - holding->mapped_bytes[device];
    size_t unused = pools[device].reserved_bytes - used_of(device);
    if (unused < missing)
        unused += take_from_others(holding, device, missing - unused, stream);
    if (unused < missing) {
        if (!book_charge(&driver.book, driver.gpus[device], missing - unused))
            return false;
        pools[device].reserved_bytes += missing - unused;
        book_note(&driver.book, driver.gpus[device], BOOK_GRAPHS, (int64_t)(missing - unused));
    }
    holding->mapped_bytes[device] = need;
    if (pools[device].reserved_high_bytes < pools[device].reserved_bytes)
        pools[device].reserved_high_bytes = pools[device].reserved_bytes;
    if (pools[device].used_high_bytes < used_of(device))
        pools[device].used_high_bytes = used_of(device);
    return true;
}

CUresult graph_memory_upload(CUgraphExec exec, CUstream stream) {
    if (!graph_memory_in(exec->graph))
        return CUDA_SUCCESS;
    struct graph_holding *holding = holding_of(exec);
    if (!holding)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (CUdevice device = 0; device < driver.device_count; device++)
        if (!map(holding, device, stream))
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

static bool has_live(CUgraphExec exec) {
    for (CUgraphNode node = exec->graph->first; node; node = node->next)
        if (node->allocation && node->allocation->holder)
            return true;
    return false;
}

static void free_live(CUgraphExec exec) {
    for (CUgraphNode node = exec->graph->first; node; node = node->next)
        if (node->allocation && node->allocation->holder)
            graph_memory_free(node->allocation);
}

CUresult graph_memory_launch(CUgraphExec exec, CUstream stream) {
    if (!graph_memory_in(exec->graph))
        return CUDA_SUCCESS;
    if (has_live(exec) && !(exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))
        return CUDA_ERROR_INVALID_VALUE;
    free_live(exec);
    CUresult result = graph_memory_upload(exec, stream);
    if (result)
        return result;
    for (CUgraphNode node = exec->graph->first; node; node = node->next) {
        if (node->allocation)
            begin(node->allocation, holding_of(exec));
        else if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE && graph_memory_at(node->address))
            graph_memory_free(graph_memory_at(node->address));
    }
    return CUDA_SUCCESS;
}

void graph_memory_launched(CUgraphExec exec, CUstream stream) {
    if (!graph_memory_in(exec->graph))
        return;
    struct graph_holding *holding = holding_of(exec);
    holding->stream = stream;
    holding->gpu = stream->context->gpu;
    holding->mark = stream->mark;
    holding->is_queued = stream->first != NULL;
}

void graph_memory_destroyed(CUgraphExec exec) {
    struct graph_holding *holding = first;
    while (holding && holding->exec != exec)
        holding = holding->next;
    if (holding)
        holding->exec = NULL;
    settle();
}

void graph_memory_trim(CUdevice device) {
    for (struct graph_holding *holding = first; holding; holding = holding->next)
        if (!is_running(holding))
            holding->mapped_bytes[device] -= surplus_of(holding, device);
    size_t excess = pools[device].reserved_bytes - used_of(device);
    pools[device].reserved_bytes -= excess;
    if (excess) {
        book_refund(&driver.book, driver.gpus[device], excess);
        book_note(&driver.book, driver.gpus[device], BOOK_GRAPHS, -(int64_t)excess);
    }
}

static bool is_live_on(const struct allocation *allocation, const void *device) {
    return allocation->kind == MEMORY_GRAPH && allocation->device == *(const CUdevice *)device &&
           allocation->graph->holder;
}

void graph_memory_leave(CUdevice device) {
    struct allocation *found;
    while ((found = memory_search(is_live_on, &device)))
        graph_memory_free(found->graph);
    graph_memory_trim(device);
}

size_t *graph_memory_figure(CUdevice device, CUgraphMem_attribute attribute) {
    pools[device].used_bytes = used_of(device);
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        return &pools[device].used_bytes;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        return &pools[device].used_high_bytes;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        return &pools[device].reserved_bytes;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        return &pools[device].reserved_high_bytes;
    default:
        return NULL;
    }
}
