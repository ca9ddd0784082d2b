/* Repeats one operation and prints its cost; runs with and without the preload library.
 *
 *     hook_memory                 a process that obeys one command a line:
 *         pair FUNCTION BYTES MS      median nanoseconds of one allocation and its free
 *         launch FUNCTION MS          median nanoseconds of one launch
 *     hook_memory start           only initialises CUDA and makes a context
 *
 * Both first print the time at which they were ready, in nanoseconds of CLOCK_MONOTONIC, and end with their
 * standard input.
 */
#define _GNU_SOURCE
#include "../task.h"

#include <string.h>

typedef unsigned long long number;

/* Small requests share a block of 2 MiB. With one of them kept during a burst, the block is neither taken nor
 * freed within it. The cost of the emulator's mmap and munmap depends on a process's other mappings, and so
 * differs by a microsecond and more with any preload, even one that does nothing. */
#define KEPT_BYTES 512

static CUfunction kernel;
static CUgraphExec graph;
static CUdevice device;

static void pair_alloc(size_t bytes) {
    CUdeviceptr pointer;
    MUST(cuMemAlloc(&pointer, bytes));
    MUST(cuMemFree(pointer));
}

static void pair_async(size_t bytes) {
    CUdeviceptr pointer;
    MUST(cuMemAllocAsync(&pointer, bytes, NULL));
    MUST(cuMemFreeAsync(pointer, NULL));
}

static void pair_create(size_t bytes) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    MUST(cuMemCreate(&handle, bytes, &prop, 0));
    MUST(cuMemRelease(handle));
}

static void launch_kernel(size_t unused) {
    uint64_t length_ns = 0;
    void *parameters[] = {&length_ns};
    (void)unused;
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
}

static void launch_graph(size_t unused) {
    (void)unused;
    MUST(cuGraphLaunch(graph, NULL));
}

static const struct {
    const char *name;
    void (*once)(size_t bytes);
} measured[] = {
    {"cuMemAlloc", pair_alloc},        {"cuMemAllocAsync", pair_async}, {"cuMemCreate", pair_create},
    {"cuLaunchKernel", launch_kernel}, {"cuGraphLaunch", launch_graph},
};

/* The wait for queued launches is not timed, so that no launch waits for room in the queue. */
static void measure(void (*once)(size_t), size_t bytes, number ms) {
    static uint64_t took_ns[MOST_BURSTS];
    uint64_t end_ns = now_ns() + ms * 1000000;
    size_t bursts = 0;
    while (bursts < MOST_BURSTS && now_ns() < end_ns) {
        CUdeviceptr kept = 0;
        if (bytes && bytes <= KEPT_BYTES)
            MUST(cuMemAlloc(&kept, KEPT_BYTES));
        uint64_t start_ns = now_ns();
        for (int i = 0; i < BURST; i++)
            once(bytes);
        took_ns[bursts++] = now_ns() - start_ns;
        if (kept)
            MUST(cuMemFree(kept));
        if (bursts % (MOST_QUEUED / BURST) == 0)
            MUST(cuCtxSynchronize());
    }
    tell_median(took_ns, bursts);
}

static void obey(const char *line) {
    char what[16], name[32];
    number first = 0, second = 0;
    int given = sscanf(line, "%15s %31s %llu %llu", what, name, &first, &second);
    for (size_t i = 0; i < sizeof(measured) / sizeof(measured[0]); i++)
        if (given >= 3 && strcmp(name, measured[i].name) == 0) {
            measure(measured[i].once, given == 4 ? first : 0, given == 4 ? second : first);
            return;
        }
    printf("unknown command\n");
}

static void make_launchable(void) {
    static const char image[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                ".visible .entry busy(.param .u64 duration)\n{\n    ret;\n}\n";
    CUmodule module;
    CUgraph empty;
    CUgraphNode node;
    MUST(cuModuleLoadData(&module, image));
    MUST(cuModuleGetFunction(&kernel, module, "busy"));
    MUST(cuGraphCreate(&empty, 0));
    MUST(cuGraphAddEmptyNode(&node, empty, NULL, 0));
    MUST(cuGraphInstantiateWithFlags(&graph, empty, 0));
}

int main(int count, char **arguments) {
    char line[256];
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    printf("%llu\n", (number)now_ns());
    fflush(stdout);
    if (count == 1 || strcmp(arguments[1], "start") != 0) {
        MUST(cuCtxSetCurrent(context));
        make_launchable();
    }
    while (fgets(line, sizeof(line), stdin)) {
        obey(line);
        fflush(stdout);
    }
    return 0;
}
