/* Restless programs whose streams capture, call back, and wait for each other or for later launches. */
#define _GNU_SOURCE
#include "restless.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

enum { STREAMS = 4 };

static CUevent event_new(void) {
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static void pause_us(long us) {
    struct timespec left = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* Launches back to back. */
static long greedy(void) {
    CUstream stream = stream_new();
    long rounds = 0;
    for (; goes_on(); rounds++)
        launch(stream, LONG_US);
    MUST(cuStreamSynchronize(stream));
    return rounds;
}

/* Launches and waits. */
static long polite(void) {
    CUstream stream = stream_new();
    CUdeviceptr memory = memory_new();
    long rounds = 0;
    for (; goes_on(); rounds++) {
        for (int i = 0; i < 20; i++) {
            launch(stream, SHORT_US);
            MUST(cuStreamSynchronize(stream));
        }
        MUST(cuMemsetD32Async(memory, (uint32_t)rounds, WORDS, stream));
        check(memory, (uint32_t)rounds, stream);
    }
    return rounds;
}

/* One thread captures graphs and launches them, while another launches all the time. */
static long capture(CUstreamCaptureMode mode) {
    CUstream stream = stream_new();
    CUdeviceptr memory = memory_new(), copy = memory_new();
    pthread_t beside = start(launch_beside, NULL);
    long rounds = 0;
    for (; goes_on(); rounds++) {
        CUgraph graph;
        CUgraphExec executable;
        MUST(cuStreamBeginCapture(stream, mode));
        MUST(cuMemsetD32Async(memory, (uint32_t)rounds, WORDS, stream));
        for (int i = 0; i < 10; i++) {
            launch(stream, SHORT_US);
            pause_us(200);
        }
        MUST(cuMemcpyDtoDAsync(copy, memory, WORDS * sizeof(uint32_t), stream));
        MUST(cuStreamEndCapture(stream, &graph));
        MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
        MUST(cuGraphLaunch(executable, stream));
        check(copy, (uint32_t)rounds, stream);
        MUST(cuGraphExecDestroy(executable));
        MUST(cuGraphDestroy(graph));
    }
    pthread_join(beside, NULL);
    return rounds;
}

static long capture_global(void) {
    return capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static long capture_thread_local(void) {
    return capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static long capture_relaxed(void) {
    return capture(CU_STREAM_CAPTURE_MODE_RELAXED);
}

static atomic_long called;

static void CUDA_CB on_host(void *expected) {
    if (atomic_fetch_add(&called, 1) != (long)(intptr_t)expected)
        fail("a host function out of order", (long)(intptr_t)expected);
}

static void CUDA_CB on_callback(CUstream stream, CUresult status, void *expected) {
    (void)stream;
    must(status, "a callback's status");
    on_host(expected);
}

/* Host functions and callbacks, each in its place between kernels. */
static long callbacks(void) {
    CUstream stream = stream_new();
    long rounds = 0, count = 0;
    for (; goes_on(); rounds++) {
        for (int i = 0; i < 8; i++) {
            launch(stream, SHORT_US);
            MUST(cuLaunchHostFunc(stream, on_host, (void *)(intptr_t)count++));
            launch(stream, SHORT_US);
            MUST(cuStreamAddCallback(stream, on_callback, (void *)(intptr_t)count++, 0));
        }
        MUST(cuStreamSynchronize(stream));
        if (atomic_load(&called) != count)
            fail("host functions that ran", atomic_load(&called));
    }
    return rounds;
}

/* Streams of every priority, which they keep. */
static long priorities(void) {
    int least, greatest, priority;
    MUST(cuCtxGetStreamPriorityRange(&least, &greatest));
    CUstream streams[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        MUST(cuStreamCreateWithPriority(&streams[i], CU_STREAM_NON_BLOCKING, greatest + i));
    CUdeviceptr memory = memory_new();
    long rounds = 0;
    for (; goes_on(); rounds++) {
        CUstream stream = streams[rounds % STREAMS];
        MUST(cuStreamGetPriority(stream, &priority));
        if (priority != greatest + (int)(rounds % STREAMS))
            fail("a stream's priority", priority);
        launch(stream, LONG_US);
        MUST(cuMemsetD32Async(memory, (uint32_t)rounds, WORDS, stream));
        check(memory, (uint32_t)rounds, stream);
    }
    return rounds;
}

/* Data that passes from stream to stream, each waiting for the one before by an event. */
static long pipeline(void) {
    CUstream streams[STREAMS];
    CUdeviceptr stages[STREAMS];
    CUevent events[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = stream_new();
        stages[i] = memory_new();
        events[i] = event_new();
    }
    long rounds = 0;
    for (; goes_on(); rounds++) {
        MUST(cuMemsetD32Async(stages[0], (uint32_t)rounds, WORDS, streams[0]));
        for (int i = 0; i < STREAMS; i++) {
            launch(streams[i], SHORT_US * 4);
            MUST(cuEventRecord(events[i], streams[i]));
            if (i + 1 == STREAMS)
                break;
            MUST(cuStreamWaitEvent(streams[i + 1], events[i], 0));
            MUST(cuMemcpyDtoDAsync(stages[i + 1], stages[i], WORDS * sizeof(uint32_t), streams[i + 1]));
        }
        MUST(cuEventSynchronize(events[STREAMS - 1]));
        check(stages[STREAMS - 1], (uint32_t)rounds, streams[STREAMS - 1]);
    }
    return rounds;
}

static CUdeviceptr word;
static atomic_long asked_for;
static atomic_bool is_over;

/* Writes, later, the value for which the other stream waits on the device. */
static void *launch_later(void *unused) {
    (void)unused;
    MUST(cuCtxSetCurrent(context));
    CUstream stream = stream_new();
    for (long given = 0; !atomic_load(&is_over);) {
        if (given == atomic_load(&asked_for)) {
            pause_us(100);
            continue;
        }
        pause_us(5000);
        launch(stream, LONG_US);
        MUST(cuStreamWriteValue32(stream, word, (cuuint32_t)++given, 0));
    }
    MUST(cuStreamSynchronize(stream));
    return NULL;
}

/* A stream that waits on the device for work not launched yet. */
static long later(void) {
    CUstream stream = stream_new();
    CUdeviceptr memory = memory_new();
    word = memory_new();
    MUST(cuMemsetD32(word, 0, WORDS));
    pthread_t other = start(launch_later, NULL);
    long rounds = 0;
    while (goes_on()) {
        launch(stream, LONG_US);
        MUST(cuStreamWaitValue32(stream, word, (cuuint32_t)++rounds, CU_STREAM_WAIT_VALUE_GEQ));
        launch(stream, LONG_US);
        MUST(cuMemsetD32Async(memory, (uint32_t)rounds, WORDS, stream));
        atomic_store(&asked_for, rounds);
        check(memory, (uint32_t)rounds, stream);
    }
    atomic_store(&is_over, true);
    pthread_join(other, NULL);
    return rounds;
}

/* A stream that waits on the device for a value. This thread writes it after more launches than a queue
 * takes.
 */
static long flag(void) {
    CUstream stream = stream_new();
    CUdeviceptr memory = memory_new(), address;
    volatile uint32_t *said;
    MUST(cuMemHostAlloc((void **)&said, sizeof *said, CU_MEMHOSTALLOC_DEVICEMAP));
    MUST(cuMemHostGetDevicePointer(&address, (void *)said, 0));
    *said = 0;
    long rounds = 0;
    while (goes_on()) {
        MUST(cuStreamWaitValue32(stream, address, (cuuint32_t)++rounds, CU_STREAM_WAIT_VALUE_GEQ));
        for (int i = 0; i < 6; i++)
            launch(stream, LONG_US);
        MUST(cuMemsetD32Async(memory, (uint32_t)rounds, WORDS, stream));
        *said = (uint32_t)rounds;
        check(memory, (uint32_t)rounds, stream);
    }
    return rounds;
}

/* Two GPUs. Each round needs both, one after the other and at once, as a collective does. */
static long collective(void) {
    CUcontext contexts[2];
    CUfunction kernels[2];
    CUstream streams[2];
    CUdeviceptr memory[2];
    for (int i = 0; i < 2; i++) {
        MUST(cuDevicePrimaryCtxRetain(&contexts[i], i));
        MUST(cuCtxSetCurrent(contexts[i]));
        MUST(cuModuleLoadData(&module, "any image"));
        MUST(cuModuleGetFunction(&kernels[i], module, "busy"));
        streams[i] = stream_new();
        memory[i] = memory_new();
    }
    long rounds = 0;
    for (; goes_on(); rounds++) {
        for (int i = 0; i < 2; i++) {
            MUST(cuCtxSetCurrent(contexts[i]));
            kernel = kernels[i];
            launch(streams[i], LONG_US);
            MUST(cuMemsetD32Async(memory[i], (uint32_t)rounds, WORDS, streams[i]));
        }
        for (int i = 0; i < 2; i++) {
            MUST(cuCtxSetCurrent(contexts[i]));
            check(memory[i], (uint32_t)rounds, streams[i]);
        }
    }
    return rounds;
}

const struct sort stream_sorts[] = {
    {"greedy", greedy},
    {"polite", polite},
    {"capture-global", capture_global},
    {"capture-thread-local", capture_thread_local},
    {"capture-relaxed", capture_relaxed},
    {"callbacks", callbacks},
    {"priorities", priorities},
    {"pipeline", pipeline},
    {"later", later},
    {"flag", flag},
    {"collective", collective},
    {NULL, NULL},
};
