/* Modes that keep a GPU at work, each by itself.
 *
 *   async    launches back to back, with 200 ms queued
 *   deep     the same with 2 s queued
 *   sync     launches and waits
 *   graph    graphs of `each` kernels back to back, with 200 ms queued
 *   duty     works for 10 ms, waits, sleeps as long as that
 *   jitter   like `async` with 40 ms queued, but the host pauses for 5 ms after each 20 ms of work
 *   loader   launches and waits; each fifth step, by chance, is launched 40 ms late
 *   fan-out  launches into each of `each` streams, and waits for all */
#define _GNU_SOURCE
#include "tenant.h"

#define RING 4
#define QUEUE_NS (200 * MS) /* work queued ahead, or MOST_QUEUED launches */
#define DEEP_QUEUE_NS (2000 * MS)
#define LEAST_QUEUED 4    /* long kernels queue at least this many */
#define DUTY_NS (10 * MS) /* work between two sleeps, unless a kernel is longer */
#define JITTER_NS (20 * MS)
#define JITTER_QUEUE_NS (40 * MS)
#define JITTER_PAUSE_NS (5 * MS)
#define LATE_NS (40 * MS)
#define LATE_PART 0.2

static CUevent ring[RING];

static void make_ring(void) {
    for (int i = 0; i < RING && !ring[i]; i++)
        MUST(cuEventCreate(&ring[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
}

/* Launches one more group of `once`, with at most four groups queued ahead. */
static void queue_group(uint64_t turn, void (*once)(void), uint64_t group) {
    if (turn >= RING)
        MUST(cuEventSynchronize(ring[turn % RING]));
    for (uint64_t i = 0; i < group; i++)
        once();
    MUST(cuEventRecord(ring[turn % RING], stream));
}

/* Runs `once` back to back; each has this many kernels. */
static void keep_queued(void (*once)(void), uint64_t kernels_each, uint64_t queue_ns) {
    uint64_t each_ns = order.kernel_ns * kernels_each;
    uint64_t group = between(queue_ns / each_ns, LEAST_QUEUED, MOST_QUEUED) / RING;
    make_ring();
    for (uint64_t turn = 0; now_ns() < order.end_ns; turn++) {
        queue_group(turn, once, group);
        done.kernels += group * kernels_each;
    }
    MUST(cuStreamSynchronize(stream));
}

static void launch_one(void) {
    launch(order.kernel_ns);
}

static void work_async(void) {
    keep_queued(launch_one, 1, QUEUE_NS);
}

static void work_deep(void) {
    keep_queued(launch_one, 1, DEEP_QUEUE_NS);
}

static void work_sync(void) {
    for (; now_ns() < order.end_ns; done.kernels++) {
        launch_one();
        MUST(cuStreamSynchronize(stream));
    }
}

static CUgraphExec graph;

static void launch_graph(void) {
    MUST(cuGraphLaunch(graph, stream));
}

static void make_graph(void) {
    CUgraph nodes;
    CUgraphNode node = NULL;
    void *parameters[] = {&order.kernel_ns};
    CUDA_KERNEL_NODE_PARAMS params = {.func = device_kernel("busy"),
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = parameters};
    MUST(cuGraphCreate(&nodes, 0));
    for (uint64_t i = 0; i < order.each; i++) {
        CUgraphNode before = node;
        MUST(cuGraphAddKernelNode(&node, nodes, before ? &before : NULL, before ? 1 : 0, &params));
    }
    MUST(cuGraphInstantiateWithFlags(&graph, nodes, 0));
    MUST(cuGraphDestroy(nodes));
}

static void work_graph(void) {
    make_graph();
    sleep_until(order.begin_ns);
    keep_queued(launch_graph, order.each, QUEUE_NS);
    MUST(cuGraphExecDestroy(graph));
}

static void work_duty(void) {
    uint64_t sleep_ns = between(DUTY_NS, order.kernel_ns, UINT64_MAX);
    uint64_t count = between(DUTY_NS / order.kernel_ns, 1, DUTY_NS);
    while (now_ns() < order.end_ns) {
        for (uint64_t i = 0; i < count; i++)
            launch_one();
        MUST(cuStreamSynchronize(stream));
        done.kernels += count;
        sleep_until(now_ns() + sleep_ns);
    }
}

static void work_jitter(void) {
    uint64_t group = JITTER_QUEUE_NS / RING / order.kernel_ns;
    make_ring();
    for (uint64_t turn = 0; now_ns() < order.end_ns; turn++) {
        queue_group(turn, launch_one, group);
        done.kernels += group;
        if (turn % (JITTER_NS / (JITTER_QUEUE_NS / RING)) == 1)
            sleep_until(now_ns() + JITTER_PAUSE_NS);
    }
    MUST(cuStreamSynchronize(stream));
}

static void work_loader(void) {
    for (; now_ns() < order.end_ns; done.kernels++) {
        launch_one();
        MUST(cuStreamSynchronize(stream));
        count_step();
        if (drawn() < LATE_PART)
            sleep_until(now_ns() + LATE_NS);
    }
}

static void work_fan_out(void) {
    CUfunction busy = device_kernel("busy");
    CUstream *streams = calloc(order.each, sizeof(CUstream));
    for (uint64_t i = 0; i < order.each; i++)
        streams[i] = stream_new();
    sleep_until(order.begin_ns);
    for (; now_ns() < order.end_ns; count_step()) {
        for (uint64_t i = 0; i < order.each; i++, done.kernels++)
            launch_on(busy, streams[i], order.kernel_ns);
        MUST(cuCtxSynchronize());
    }
    for (uint64_t i = 0; i < order.each; i++)
        MUST(cuStreamDestroy(streams[i]));
    free(streams);
}

const struct mode steady_modes[] = {
    {"async", work_async, false},   {"deep", work_deep, false},      {"sync", work_sync, false},
    {"graph", work_graph, true},    {"duty", work_duty, false},      {"jitter", work_jitter, false},
    {"loader", work_loader, false}, {"fan-out", work_fan_out, true}, {NULL, NULL, false},
};
