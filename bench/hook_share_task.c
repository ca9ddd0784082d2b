/* One tenant of a shared GPU: an ordinary program that keeps the GPU at work in one manner, for as long as it
 * is told. Driver API only, so it runs on the emulator and on a real GPU; it knows nothing of the preload
 * library.
 *
 *     hook_share_task [gpu]       obeys one line each, and ends with its standard input:
 *         MODE KERNEL_NS BEGIN_NS END_NS EACH   works from BEGIN to END (CLOCK_MONOTONIC), and tells what it
 * did launch MS                             median nanoseconds of a launch of nothing
 *
 * Modes: `async`, launches back to back, with a deep queue; `sync`, launch and wait; `graph`, graphs of EACH
 * kernels back to back; `duty`, work, wait, sleep as long as the work takes; `infer`, 2 ms of work every 20
 * ms, each latency from the moment it was due.
 *
 * With `gpu`, kernels add up on the device how long one or more of them stood there and how long they ran,
 * and the answer carries both sums every 50 ms: what the emulator's book would tell. See `ptx`. */
#define _GNU_SOURCE
#include "task.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

/* Works for as many nanoseconds as its parameter says. What it counts is the GPU's time and not the clock's:
 * between two looks at the timer no more than 20 us are taken for work, as whoever looks later was switched
 * out for another process. Where `page` is set, it tells there, each millisecond and at its end,
 *
 * - how long something was unfinished: from a kernel's start to its end, and from the end of the one before
 * it if that is no longer ago than `gap`, the way from one queued kernel to the next, which is not idleness;
 * - how long kernels worked.
 *
 * A launch that has not begun, being on its way or behind another process, is not seen. */
static const char ptx[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .global .u64 page;\n"
    ".visible .global .u64 gap;\n"
    ".visible .global .u64 unfinished;\n"
    ".visible .global .u64 worked;\n"
    ".visible .global .u64 ended;\n"
    ".visible .entry busy(.param .u64 duration)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b64 %length, %page, %start, %now, %last, %told, %step, %unfinished, %worked, %done, %sum;\n"
    "    ld.param.u64 %length, [duration];\n"
    "    mov.u64 %start, %globaltimer;\n"
    "    ld.global.u64 %page, [page];\n"
    "    ld.global.u64 %last, [ended];\n"
    "    ld.global.u64 %step, [gap];\n"
    "    sub.u64 %sum, %start, %last;\n"
    "    setp.gt.u64 %p, %sum, %step;\n"
    "    selp.u64 %last, %start, %last, %p;\n"
    "    ld.global.u64 %unfinished, [unfinished];\n"
    "    sub.u64 %unfinished, %unfinished, %last;\n"
    "    ld.global.u64 %worked, [worked];\n"
    "    mov.u64 %done, 0;\n"
    "    mov.u64 %last, %start;\n"
    "    mov.u64 %told, %start;\n"
    "again:\n"
    "    mov.u64 %now, %globaltimer;\n"
    "    sub.u64 %step, %now, %last;\n"
    "    min.u64 %step, %step, 20000;\n"
    "    add.u64 %done, %done, %step;\n"
    "    mov.u64 %last, %now;\n"
    "    sub.u64 %step, %now, %told;\n"
    "    setp.lt.u64 %p, %step, 1000000;\n"
    "    @%p bra quiet;\n"
    "    mov.u64 %told, %now;\n"
    "    setp.eq.u64 %p, %page, 0;\n"
    "    @%p bra quiet;\n"
    "    add.u64 %sum, %unfinished, %now;\n"
    "    st.volatile.global.u64 [%page], %sum;\n"
    "    add.u64 %sum, %worked, %done;\n"
    "    st.volatile.global.u64 [%page+8], %sum;\n"
    "quiet:\n"
    "    setp.lt.u64 %p, %done, %length;\n"
    "    @%p bra again;\n"
    "    setp.eq.u64 %p, %page, 0;\n"
    "    @%p bra untold;\n"
    "    add.u64 %sum, %unfinished, %now;\n"
    "    st.global.u64 [unfinished], %sum;\n"
    "    st.volatile.global.u64 [%page], %sum;\n"
    "    add.u64 %sum, %worked, %done;\n"
    "    st.global.u64 [worked], %sum;\n"
    "    st.volatile.global.u64 [%page+8], %sum;\n"
    "    st.global.u64 [ended], %now;\n"
    "untold:\n"
    "    ret;\n"
    "}\n";

#define MS 1000000ull
#define QUEUE_NS (200 * MS) /* how much work `async` and `graph` queue ahead, or MOST_QUEUED launches; */
#define LEAST_QUEUED 4      /* but long kernels queue as well */
#define RING 4
#define DUTY_NS (10 * MS) /* of work between two sleeps, where a kernel is not longer */
#define INFER_NS (2 * MS)
#define INFER_EVERY_NS (20 * MS)
#define MOST_LATENCIES 65536
#define SAMPLE_NS (50 * MS)
#define MOST_SAMPLES 65536
#define QUEUED_GAP_NS 20000ull /* longer than from one queued kernel to the next */

static CUcontext context;
static CUfunction kernel;
static CUstream stream;
static CUevent ring[RING];

static struct {
    uint64_t kernel_ns, begin_ns, end_ns, graph_kernels;
} order;

static struct {
    uint64_t kernels;
    size_t latency_count;
    uint32_t latencies_us[MOST_LATENCIES];
} done;

/* The device's own sums, read by a thread of this program. */
static struct {
    volatile uint64_t *page;
    CUdeviceptr gap;
    pthread_t thread;
    volatile bool stop;
    size_t count;
    uint64_t time_ns[MOST_SAMPLES], unfinished_ns[MOST_SAMPLES], worked_ns[MOST_SAMPLES];
} seen;

static void sleep_until(uint64_t due_ns) {
    struct timespec due = {.tv_sec = (time_t)(due_ns / 1000000000), .tv_nsec = (long)(due_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) != 0)
        ;
}

static void launch(uint64_t length_ns) {
    void *parameters[] = {&length_ns};
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static uint64_t between(uint64_t value, uint64_t least, uint64_t most) {
    return value < least ? least : value > most ? most : value;
}

/* `once` back to back, each so many kernels, with four groups of them queued ahead. */
static void keep_queued(void (*once)(void), uint64_t kernels_each) {
    uint64_t each_ns = order.kernel_ns * kernels_each;
    uint64_t group = between(QUEUE_NS / each_ns, LEAST_QUEUED, MOST_QUEUED) / RING;
    for (uint64_t turn = 0; now_ns() < order.end_ns; turn++) {
        if (turn >= RING)
            MUST(cuEventSynchronize(ring[turn % RING]));
        for (uint64_t i = 0; i < group; i++)
            once();
        done.kernels += group * kernels_each;
        MUST(cuEventRecord(ring[turn % RING], stream));
    }
    MUST(cuStreamSynchronize(stream));
}

static void launch_one(void) {
    launch(order.kernel_ns);
}

static void work_async(void) {
    keep_queued(launch_one, 1);
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
    CUDA_KERNEL_NODE_PARAMS params = {.func = kernel,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = parameters};
    MUST(cuGraphCreate(&nodes, 0));
    for (uint64_t i = 0; i < order.graph_kernels; i++) {
        CUgraphNode before = node;
        MUST(cuGraphAddKernelNode(&node, nodes, before ? &before : NULL, before ? 1 : 0, &params));
    }
    MUST(cuGraphInstantiateWithFlags(&graph, nodes, 0));
    MUST(cuGraphDestroy(nodes));
}

static void work_graph(void) {
    make_graph();
    sleep_until(order.begin_ns);
    keep_queued(launch_graph, order.graph_kernels);
    MUST(cuGraphExecDestroy(graph));
}

static void burst(uint64_t length_ns) {
    uint64_t count = between(length_ns / order.kernel_ns, 1, length_ns);
    for (uint64_t i = 0; i < count; i++)
        launch_one();
    MUST(cuStreamSynchronize(stream));
    done.kernels += count;
}

static void work_duty(void) {
    uint64_t sleep_ns = between(DUTY_NS, order.kernel_ns, UINT64_MAX);
    while (now_ns() < order.end_ns) {
        burst(DUTY_NS);
        sleep_until(now_ns() + sleep_ns);
    }
}

static void work_infer(void) {
    for (uint64_t due_ns = order.begin_ns; due_ns < order.end_ns; due_ns += INFER_EVERY_NS) {
        sleep_until(due_ns);
        burst(INFER_NS);
        if (done.latency_count < MOST_LATENCIES)
            done.latencies_us[done.latency_count++] = (uint32_t)((now_ns() - due_ns) / 1000);
    }
}

static const struct {
    const char *name;
    void (*work)(void);
} modes[] = {
    {"async", work_async}, {"sync", work_sync},   {"graph", work_graph},
    {"duty", work_duty},   {"infer", work_infer},
};

static void *watch(void *unused) {
    (void)unused;
    for (uint64_t due_ns = order.begin_ns; !seen.stop && seen.count < MOST_SAMPLES; due_ns += SAMPLE_NS) {
        sleep_until(due_ns);
        seen.time_ns[seen.count] = now_ns();
        seen.unfinished_ns[seen.count] = seen.page[0];
        seen.worked_ns[seen.count++] = seen.page[1];
    }
    return NULL;
}

/* Between a launch that was waited for and the next one the GPU is idle, however short that is. */
static void start_watching(bool is_queued) {
    uint64_t gap_ns = is_queued ? QUEUED_GAP_NS : 0;
    seen.count = 0;
    seen.stop = false;
    if (!seen.page)
        return;
    MUST(cuMemcpyHtoD(seen.gap, &gap_ns, sizeof gap_ns));
    if (pthread_create(&seen.thread, NULL, watch, NULL) != 0)
        exit(3);
}

static void stop_watching(void) {
    seen.stop = true;
    if (seen.page)
        pthread_join(seen.thread, NULL);
}

static void tell(uint64_t ended_ns) {
    printf("{\"kernels\": %llu, \"began_ns\": %llu, \"ended_ns\": %llu, \"latencies_us\": [",
           (unsigned long long)done.kernels, (unsigned long long)order.begin_ns,
           (unsigned long long)ended_ns);
    for (size_t i = 0; i < done.latency_count; i++)
        printf("%s%u", i ? ", " : "", done.latencies_us[i]);
    printf("], \"samples\": [");
    for (size_t i = 0; i < seen.count; i++)
        printf("%s[%llu, %llu, %llu]", i ? ", " : "", (unsigned long long)seen.time_ns[i],
               (unsigned long long)seen.unfinished_ns[i], (unsigned long long)seen.worked_ns[i]);
    printf("]}\n");
}

static void work(const char *mode) {
    done.kernels = done.latency_count = 0;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(mode, modes[i].name) != 0)
            continue;
        start_watching(modes[i].work != work_sync);
        if (modes[i].work != work_graph)
            sleep_until(order.begin_ns);
        modes[i].work();
        uint64_t ended_ns = now_ns();
        stop_watching();
        tell(ended_ns);
        return;
    }
    printf("{\"error\": \"no such mode\"}\n");
}

/* What has been handed over is waited for off the clock, so that no launch waits for room in the queue. */
static void measure_launches(uint64_t ms) {
    static uint64_t took_ns[MOST_BURSTS];
    uint64_t end_ns = now_ns() + ms * MS;
    size_t bursts = 0;
    while (bursts < MOST_BURSTS && now_ns() < end_ns) {
        uint64_t start_ns = now_ns();
        for (int i = 0; i < BURST; i++)
            launch(0);
        took_ns[bursts++] = now_ns() - start_ns;
        if (bursts % (MOST_QUEUED / BURST) == 0)
            MUST(cuStreamSynchronize(stream));
    }
    tell_median(took_ns, bursts);
}

static void obey(const char *line) {
    char mode[16];
    unsigned long long kernel_ns, begin_ns = 0, end_ns = 0, each = 0;
    int given = sscanf(line, "%15s %llu %llu %llu %llu", mode, &kernel_ns, &begin_ns, &end_ns, &each);
    if (given == 2 && strcmp(mode, "launch") == 0) {
        measure_launches(kernel_ns);
    } else if (given == 5 && kernel_ns && each) {
        order = (__typeof__(order)){
            .kernel_ns = kernel_ns, .begin_ns = begin_ns, .end_ns = end_ns, .graph_kernels = each};
        work(mode);
    } else {
        printf("{\"error\": \"not understood\"}\n");
    }
}

static CUdeviceptr variable(CUmodule module, const char *name) {
    CUdeviceptr address;
    size_t bytes;
    MUST(cuModuleGetGlobal(&address, &bytes, module, name));
    return address;
}

static void share_page(CUmodule module) {
    CUdeviceptr address;
    void *host;
    MUST(cuMemHostAlloc(&host, 2 * sizeof(uint64_t), CU_MEMHOSTALLOC_DEVICEMAP));
    memset(host, 0, 2 * sizeof(uint64_t));
    MUST(cuMemHostGetDevicePointer(&address, host, 0));
    MUST(cuMemcpyHtoD(variable(module, "page"), &address, sizeof address));
    seen.gap = variable(module, "gap");
    seen.page = host;
}

static void prepare(bool is_gpu) {
    CUdevice device;
    CUmodule module;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&kernel, module, "busy"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < RING; i++)
        MUST(cuEventCreate(&ring[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    if (is_gpu)
        share_page(module);
}

int main(int count, char **arguments) {
    char line[256];
    prepare(count > 1 && strcmp(arguments[1], "gpu") == 0);
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        obey(line);
        fflush(stdout);
    }
    return 0;
}
