#define _GNU_SOURCE
#include "paths.h"

#include <stddef.h>

#define MIB ((uint64_t)1 << 20)

/* Some thread may be about to capture: what waits for a whole context would spoil that. */
static bool captures(const struct hand *hand) {
    for (unsigned i = 0; i < hand->chosen_count; i++)
        if (hand->chosen[i] == PATH_capture)
            return true;
    return false;
}

void stir_pools(struct hand *hand) {
    CUmemoryPool pool;
    cuuint64_t keep_bytes = draw(hand, 5) * 16 * MIB;
    MUST(cuDeviceGetDefaultMemPool(&pool, hand->device));
    switch (draw(hand, 6)) {
    case 0:
        MUST(cuMemPoolTrimTo(draw(hand, 2) ? hand->pool : pool, keep_bytes));
        break;
    case 1:
        MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep_bytes));
        break;
    case 2:
        MUST(cuDeviceSetMemPool(hand->device, draw(hand, 2) ? hand->pool : pool));
        break;
    case 3:
        MUST(cuDeviceGraphMemTrim(hand->device));
        break;
    case 4:
        MUST(cuStreamSynchronize(NULL));
        break;
    default:
        MUST(captures(hand) ? cuStreamSynchronize(hand->stream) : cuCtxSynchronize());
    }
}

static void make_by_hand(struct hand *hand, struct item *item, bool is_freed_within) {
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {.bytesize = item->bytes};
    CUgraphNode allocation, end;
    wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.poolProps.location.id = hand->device;
    MUST(cuGraphCreate(&item->graph, 0));
    MUST(cuGraphAddMemAllocNode(&allocation, item->graph, NULL, 0, &wanted));
    item->handle = wanted.dptr;
    if (is_freed_within)
        MUST(cuGraphAddMemFreeNode(&end, item->graph, &allocation, 1, wanted.dptr));
}

static void make_by_capture(struct hand *hand, struct item *item, bool is_freed_within) {
    MUST(cuStreamBeginCapture(hand->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    MUST(cuMemAllocAsync(&item->handle, item->bytes, hand->stream));
    if (is_freed_within)
        MUST(cuMemFreeAsync(item->handle, hand->stream));
    MUST(cuStreamEndCapture(hand->stream, &item->graph));
}

/* Its memory comes at the first launch, and goes by its own node, by a free outside, or with the pool for
 * graphs. */
CUresult take_by_graph(struct hand *hand, struct item *item) {
    bool is_freed_within = draw(hand, 2);
    if (item->path == PATH_graph)
        make_by_hand(hand, item, is_freed_within);
    else
        make_by_capture(hand, item, is_freed_within);
    CUresult result = cuGraphInstantiateWithFlags(&item->executable, item->graph, 0);
    if (result == CUDA_SUCCESS)
        result = cuGraphLaunch(item->executable, hand->stream);
    if (result != CUDA_SUCCESS) {
        if (item->executable)
            MUST(cuGraphExecDestroy(item->executable));
        MUST(cuGraphDestroy(item->graph));
        return result;
    }
    if (is_freed_within)
        item->handle = 0;
    return CUDA_SUCCESS;
}

void give_graph(struct hand *hand, const struct item *item) {
    MUST(cuStreamSynchronize(hand->stream));
    if (!item->handle && draw(hand, 2) &&
        granted(cuGraphLaunch(item->executable, hand->stream), "cuGraphLaunch"))
        MUST(cuStreamSynchronize(hand->stream));
    if (item->handle && draw(hand, 2))
        MUST(cuMemFreeAsync(item->handle, hand->stream));
    else if (item->handle)
        MUST(cuMemFree(item->handle));
    MUST(cuGraphExecDestroy(item->executable));
    MUST(cuGraphDestroy(item->graph));
}
