#include "memory/graph_needs.h"

#include <sys/mman.h>

#include "driver/driver.h"
#include "driver/gpus.h"
#include "memory/bytes.h"

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
