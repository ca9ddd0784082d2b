/* The driver's pool for graphs, one per GPU. It is charged like any other pool, by the most that its graphs
 * can make it hold. */
#include "memory/pools/pools.h"

#include <sys/mman.h>

#include "driver/driver.h"
#include "driver/gpus.h"
#include "memory/bytes.h"
#include "memory/ledger.h"

static struct plimsoll_pool *known_graph_pool(int gpu) {
    unsigned place = gpu < 0 ? 0 : __atomic_load_n(&plimsoll_pools()->graphs[gpu], __ATOMIC_ACQUIRE);
    return place ? &plimsoll_pools()->records[place - 1] : NULL;
}

struct plimsoll_pool *plimsoll_graph_pool_of(int gpu) {
    struct plimsoll_pool *pool = known_graph_pool(gpu);
    if (pool)
        return pool;
    CUdevice device = plimsoll_device_of_gpu(gpu);
    pthread_mutex_lock(&plimsoll_pools()->learn_lock);
    pool = known_graph_pool(gpu);
    if (!pool && (pool = plimsoll_pool_take(gpu))) {
        pthread_mutex_lock(&pool->lock);
        pool->is_graphs = true;
        pool->device = device;
        pthread_mutex_unlock(&pool->lock);
        __atomic_store_n(&plimsoll_pools()->graphs[gpu], (unsigned)plimsoll_pool_index(pool) + 1,
                         __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&plimsoll_pools()->learn_lock);
    return pool;
}

void plimsoll_graph_pool_add(int gpu, uint64_t bytes) {
    struct plimsoll_pool *pool = plimsoll_graph_pool_of(gpu);
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->demand_bytes += bytes;
    pthread_mutex_unlock(&pool->lock);
}

void plimsoll_graph_pool_remove(int gpu, uint64_t bytes) {
    struct plimsoll_pool *pool = known_graph_pool(gpu);
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->demand_bytes -= bytes;
    pool->orphan_bytes += bytes;
    pthread_mutex_unlock(&pool->lock);
}

/* No graph maps more than its nodes need, so all graphs together hold no more than the sum. */
uint64_t plimsoll_graph_pool_growth(struct plimsoll_pool *pool, uint64_t bytes) {
    pthread_mutex_lock(&pool->lock);
    uint64_t most = pool->demand_bytes + pool->orphan_bytes;
    uint64_t growth = most > pool->charged_bytes ? most - pool->charged_bytes : 0;
    pthread_mutex_unlock(&pool->lock);
    return growth < bytes ? growth : bytes;
}

static void settle_graphs(struct plimsoll_pool *pool, uint64_t started) {
    plimsoll_depth++;
    uint64_t reserved_bytes = plimsoll_pool_reserved(pool);
    plimsoll_depth--;
    pthread_mutex_lock(&pool->lock);
    /* a graph launched after the query may be destroyed before the answer is used: the answer does not
     * include it */
    bool is_overtaken = pool->in_flight > 0 || pool->started != started;
    if (!is_overtaken && pool->orphan_bytes > reserved_bytes)
        pool->orphan_bytes = reserved_bytes;
    pthread_mutex_unlock(&pool->lock);
    uint64_t missing = plimsoll_pool_settle(pool, reserved_bytes, started);
    if (missing == 0)
        return;
    /* the graph runs already: the memory that it took is counted, whatever the line says */
    plimsoll_ledger_add(plimsoll.counts, plimsoll.slot, (unsigned)pool->gpu, missing);
    pthread_mutex_lock(&pool->lock);
    pool->charged_bytes += missing;
    pthread_mutex_unlock(&pool->lock);
}

void plimsoll_graph_pool_leave(int gpu) {
    struct plimsoll_pool *pool = known_graph_pool(gpu);
    uint64_t started = plimsoll_pool_started(pool);
    plimsoll_pool_leave(pool, 0);
    settle_graphs(pool, started);
}

void plimsoll_graph_pool_update(int gpu) {
    struct plimsoll_pool *pool = known_graph_pool(gpu);
    if (pool)
        settle_graphs(pool, plimsoll_pool_started(pool));
}

/* --- what a graph needs --------------------------------------------------------------------------------
 */

/* The alignment of allocations in a graph. */
#define GRAIN_BYTES 512u

/* The depth of graphs in graphs. Deeper nodes are not examined. */
#define DEEPEST 8

static void *map_rows(size_t bytes) {
    void *rows = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return rows == MAP_FAILED ? NULL : rows;
}

static bool make_room(struct plimsoll_ranges *ranges) {
    if (ranges->count < ranges->room)
        return true;
    size_t room = ranges->room ? ranges->room * 2 : 128;
    struct plimsoll_range *rows = map_rows(room * sizeof(*rows));
    if (!rows)
        return false;
    for (size_t i = 0; i < ranges->count; i++)
        rows[i] = ranges->rows[i];
    if (ranges->rows)
        munmap(ranges->rows, ranges->room * sizeof(*rows));
    ranges->rows = rows;
    ranges->room = room;
    return true;
}

/* Keeps the rows sorted by address, which is mostly the driver's own order. */
static void add(struct plimsoll_ranges *ranges, struct plimsoll_range range) {
    if (!make_room(ranges)) {
        ranges->is_short = true;
        return;
    }
    size_t at = ranges->count++;
    for (; at > 0 && ranges->rows[at - 1].start > range.start; at--)
        ranges->rows[at] = ranges->rows[at - 1];
    ranges->rows[at] = range;
}

static void add_node(struct plimsoll_ranges *ranges, CUgraphNode node) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = 0};
    if (CALLED(cuGraphMemAllocNodeGetParams)(node, &params) != CUDA_SUCCESS)
        return;
    int gpu = plimsoll_gpu_of_location(&params.poolProps.location);
    if (gpu >= 0)
        add(ranges, (struct plimsoll_range){params.dptr, params.dptr + params.bytesize, gpu});
}

/* `depth` counts the graphs around this one. */
static void add_graph(struct plimsoll_ranges *ranges, CUgraph graph, unsigned depth) {
    size_t count = 0;
    if (CALLED(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS || count == 0 || depth == DEEPEST)
        return;
    CUgraphNode *nodes = map_rows(count * sizeof(CUgraphNode));
    size_t room = count;
    if (!nodes || CALLED(cuGraphGetNodes)(graph, nodes, &count) != CUDA_SUCCESS)
        count = 0;
    for (size_t i = 0; i < count && i < room; i++) {
        CUgraphNodeType type;
        CUgraph child;
        if (CALLED(cuGraphNodeGetType)(nodes[i], &type) != CUDA_SUCCESS)
            continue;
        if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            add_node(ranges, nodes[i]);
        else if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
                 CALLED(cuGraphChildGraphNodeGetGraph)(nodes[i], &child) == CUDA_SUCCESS)
            add_graph(ranges, child, depth + 1);
    }
    if (nodes)
        munmap(nodes, room * sizeof(CUgraphNode));
}

void plimsoll_graph_needs_add(struct plimsoll_ranges *ranges, CUgraph graph) {
    add_graph(ranges, graph, 0);
}

/* Allocations that cannot live at the same time may share an address, and then share memory. */
uint64_t plimsoll_graph_needs_on(const struct plimsoll_ranges *ranges, int gpu) {
    uint64_t sum = 0, end = 0;
    for (size_t i = 0; i < ranges->count; i++) {
        const struct plimsoll_range *row = &ranges->rows[i];
        uint64_t start = row->start > end ? row->start : end;
        if (row->gpu != gpu || row->end <= start)
            continue;
        sum += plimsoll_rounded(row->end - start, GRAIN_BYTES);
        end = row->end;
    }
    return plimsoll_rounded(sum, PLIMSOLL_BLOCK_BYTES);
}

void plimsoll_graph_needs_free(struct plimsoll_ranges *ranges) {
    if (ranges->rows)
        munmap(ranges->rows, ranges->room * sizeof(*ranges->rows));
}
