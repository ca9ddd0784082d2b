/* Launches, waits, captures, makes and ends streams and contexts from many threads, while its gate changes.
 *
 *     gate_hammer SEED SECONDS THREADS
 *
 * A life is one context, primary or created, with a stream of its own for each thread and some that all
 * share, more than a meter knows at once. Some lives have many contexts beside it, which all threads launch
 * in; some contexts end with work under way, or with streams that wait. When the time is over it waits for
 * all, prints `settled` and how often it launched, and ends with its standard input.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Old ways to launch wait at the gate like new ones. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define MOST_THREADS 8
#define SHARED 40 /* streams; more than PLIMSOLL_STREAMS */
#define BESIDE 20 /* contexts; more than a small table holds */
#define BYTES 4096
#define LENGTH_NS 20000

/* The header has these names only as macros over the others. */
CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             CUstream, void **, void **);
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *, CUfunction, void **, void **);
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                        unsigned, unsigned, CUstream, void **);
CUresult cuGraphLaunch_ptsz(CUgraphExec, CUstream);
CUresult cuLaunchHostFunc_ptsz(CUstream, CUhostFn, void *);
CUresult cuStreamSynchronize_ptsz(CUstream);
CUresult cuMemsetD8Async_ptsz(CUdeviceptr, unsigned char, size_t, CUstream);

struct hand {
    uint64_t drawn;
    unsigned launches;
    CUstream stream;
    CUdeviceptr memory; /* its last word is what streams wait for */
    cuuint32_t waited;
};

/* A context beside the one in which threads work. */
struct beside {
    CUcontext context;
    CUfunction kernel;
};

static struct {
    uint64_t end_ns;
    unsigned thread_count;
    CUcontext context;
    CUfunction kernel;
    CUstream shared[SHARED];
    struct beside beside[BESIDE];
    unsigned beside_count;
    pthread_rwlock_t
        captures; /* no thread waits for a context in which another captures: CUDA forbids that */
    struct hand hands[MOST_THREADS];
} hammer = {.captures = PTHREAD_RWLOCK_INITIALIZER};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void must(CUresult result, int line) {
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "line %d: CUDA error %d\n", line, result);
    exit(3);
}

#define MUST(call) must(call, __LINE__)

static unsigned draw(struct hand *hand, unsigned end) {
    hand->drawn = hand->drawn * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(hand->drawn >> 33) % end;
}

/* --- what a thread does ------------------------------------------------------------------------------------
 */

static void launch(struct hand *hand, CUstream stream, unsigned long long length_ns) {
    void *parameters[] = {&length_ns};
    MUST(cuLaunchKernel(hammer.kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    hand->launches++;
}

static void launch_row(struct hand *hand, CUstream stream) {
    unsigned long long length_ns = 1000u << draw(hand, 9);
    for (unsigned left = 1 + draw(hand, 30); left > 0; left--)
        launch(hand, stream, length_ns);
}

/* By each of the ways in which a kernel is launched. */
static void launch_by_any(struct hand *hand, CUstream stream) {
    unsigned long long length_ns = LENGTH_NS;
    void *parameters[] = {&length_ns};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream};
    CUDA_LAUNCH_PARAMS on_all = {.function = hammer.kernel,
                                 .gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .hStream = stream,
                                 .kernelParams = parameters};
    MUST(cuLaunchKernelEx(&config, hammer.kernel, parameters, NULL));
    MUST(cuLaunchCooperativeKernel(hammer.kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters));
    MUST(cuLaunchCooperativeKernelMultiDevice(&on_all, 1, 0));
    MUST(cuMemsetD8Async(hand->memory, 1, BYTES / 2, stream));
    MUST(cuMemcpyDtoDAsync(hand->memory, hand->memory + BYTES / 4, BYTES / 4, stream));
    hand->launches += 3;
}

static void use_default(struct hand *hand) {
    unsigned long long length_ns = LENGTH_NS;
    void *parameters[] = {&length_ns};
    CUlaunchConfig config = {
        .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
    MUST(cuLaunchKernel_ptsz(hammer.kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    MUST(cuLaunchKernelEx_ptsz(&config, hammer.kernel, parameters, NULL));
    MUST(cuLaunchCooperativeKernel_ptsz(hammer.kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters));
    MUST(cuMemsetD8Async_ptsz(hand->memory, 1, BYTES / 2, NULL));
    hand->launches += 3;
    if (draw(hand, 2))
        MUST(cuStreamSynchronize_ptsz(NULL));
}

/* --- what blocks a stream --------------------------------------------------------------------------------
 */

static void CUDA_CB run_on_host(void *argument) {
    struct timespec pause = {.tv_nsec = *(const unsigned *)argument * 100000};
    nanosleep(&pause, NULL);
}

static void CUDA_CB call_back(CUstream stream, CUresult result, void *argument) {
    (void)stream, (void)result;
    run_on_host(argument);
}

static void block_by_host(struct hand *hand, CUstream stream) {
    static const unsigned pauses[] = {0, 1, 5, 20};
    void *pause = (void *)(uintptr_t)&pauses[draw(hand, 4)];
    launch(hand, stream, LENGTH_NS);
    if (draw(hand, 2))
        MUST(cuLaunchHostFunc(stream, run_on_host, pause));
    else
        MUST(cuStreamAddCallback(stream, call_back, pause, 0));
    if (draw(hand, 4))
        launch_row(hand, stream);
    if (draw(hand, 4) == 0)
        MUST(cuLaunchHostFunc_ptsz(NULL, run_on_host, pause));
}

/* This thread's stream waits for a value that a shared stream writes some launches later. It is always the
 * same shared stream, because its order makes the word grow. */
static void block_by_value(struct hand *hand) {
    CUdeviceptr word = hand->memory + BYTES - sizeof(cuuint32_t);
    CUstream writer = hammer.shared[hand - hammer.hands];
    MUST(cuStreamWaitValue32(hand->stream, word, ++hand->waited, CU_STREAM_WAIT_VALUE_GEQ));
    launch_row(hand, hand->stream);
    launch_row(hand, writer);
    MUST(cuStreamWriteValue32(writer, word, hand->waited, CU_STREAM_WRITE_VALUE_DEFAULT));
    if (draw(hand, 2))
        MUST(cuStreamSynchronize(hand->stream));
}

static void block_by_event(struct hand *hand) {
    CUevent event;
    CUstream other = hammer.shared[draw(hand, SHARED)];
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    block_by_host(hand, other);
    MUST(cuEventRecord(event, other));
    MUST(cuStreamWaitEvent(hand->stream, event, 0));
    launch_row(hand, hand->stream);
    MUST(cuEventDestroy(event));
}

/* --- waits, captures, streams and contexts ----------------------------------------------------------------
 */

static void launch_beside(struct hand *hand) {
    unsigned long long length_ns = LENGTH_NS;
    void *parameters[] = {&length_ns};
    for (unsigned i = 0; i < hammer.beside_count; i++) {
        MUST(cuCtxSetCurrent(hammer.beside[i].context));
        MUST(cuLaunchKernel(hammer.beside[i].kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
        hand->launches++;
    }
    MUST(cuCtxSetCurrent(hammer.context));
}

static void use_all_streams(struct hand *hand) {
    for (unsigned i = 0; i < SHARED; i++)
        launch(hand, hammer.shared[i], LENGTH_NS);
}

static void capture(struct hand *hand) {
    CUgraph graph;
    CUgraphExec exec;
    pthread_rwlock_rdlock(&hammer.captures);
    MUST(cuStreamBeginCapture(hand->stream, draw(hand, 2) ? CU_STREAM_CAPTURE_MODE_RELAXED
                                                          : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch_row(hand, hand->stream);
    MUST(cuStreamEndCapture(hand->stream, &graph));
    pthread_rwlock_unlock(&hammer.captures);
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, hand->stream));
    MUST(cuGraphLaunch_ptsz(exec, hand->stream));
    MUST(cuStreamSynchronize(hand->stream));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

static void await_context(void) {
    pthread_rwlock_wrlock(&hammer.captures);
    MUST(cuCtxSynchronize());
    pthread_rwlock_unlock(&hammer.captures);
}

static void await_event(struct hand *hand) {
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, hand->stream));
    while (draw(hand, 4) && cuEventQuery(event) == CUDA_ERROR_NOT_READY)
        launch(hand, hand->stream, 10000);
    MUST(cuEventSynchronize(event));
    MUST(cuEventDestroy(event));
}

static void renew_stream(struct hand *hand) {
    MUST(cuStreamDestroy(hand->stream));
    MUST(cuStreamCreate(&hand->stream, CU_STREAM_NON_BLOCKING));
}

static void do_any(struct hand *hand) {
    CUstream shared = hammer.shared[draw(hand, SHARED)];
    switch (draw(hand, 16)) {
    case 0:
        await_context();
        break;
    case 1:
        capture(hand);
        break;
    case 2:
        renew_stream(hand);
        break;
    case 3:
        await_event(hand);
        break;
    case 4:
        use_default(hand);
        break;
    case 5:
        launch_row(hand, shared);
        break;
    case 6:
        MUST(cuStreamSynchronize(hand->stream));
        break;
    case 7:
        block_by_host(hand, hand->stream);
        break;
    case 8:
        block_by_host(hand, shared);
        break;
    case 9:
        block_by_value(hand);
        break;
    case 10:
        block_by_event(hand);
        break;
    case 11:
        launch_by_any(hand, draw(hand, 2) ? shared : hand->stream);
        break;
    case 12:
        launch_beside(hand);
        break;
    case 13:
        use_all_streams(hand);
        break;
    default:
        launch_row(hand, hand->stream);
    }
}

static void *work(void *argument) {
    struct hand *hand = argument;
    MUST(cuCtxSetCurrent(hammer.context));
    for (unsigned left = 5 + draw(hand, 60); left > 0 && now_ns() < hammer.end_ns; left--)
        do_any(hand);
    return NULL;
}

/* --- one life ---------------------------------------------------------------------------------------------
 */

static void begin_beside(struct beside *beside) {
    CUmodule module;
    CUcontext popped;
    MUST(cuCtxCreate(&beside->context, 0, 0));
    MUST(cuModuleLoadData(&module, "any image"));
    MUST(cuModuleGetFunction(&beside->kernel, module, "busy"));
    MUST(cuCtxPopCurrent(&popped));
}

static void begin(bool is_primary) {
    CUmodule module;
    if (is_primary)
        MUST(cuDevicePrimaryCtxRetain(&hammer.context, 0));
    else
        MUST(cuCtxCreate(&hammer.context, 0, 0));
    MUST(cuCtxSetCurrent(hammer.context));
    MUST(cuModuleLoadData(&module, "any image"));
    MUST(cuModuleGetFunction(&hammer.kernel, module, "busy"));
    for (unsigned i = 0; i < SHARED; i++)
        MUST(cuStreamCreate(&hammer.shared[i], CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < hammer.thread_count; i++) {
        MUST(cuStreamCreate(&hammer.hands[i].stream, CU_STREAM_NON_BLOCKING));
        MUST(cuMemAlloc(&hammer.hands[i].memory, BYTES));
        MUST(cuMemsetD8(hammer.hands[i].memory, 0, BYTES));
        hammer.hands[i].waited = 0;
    }
    hammer.beside_count = draw(&hammer.hands[0], 4) == 0 ? BESIDE : 0;
    for (unsigned i = 0; i < hammer.beside_count; i++)
        begin_beside(&hammer.beside[i]);
    MUST(cuCtxSetCurrent(hammer.context));
}

static void end(struct hand *hand, bool is_primary) {
    for (unsigned i = 0; i < hammer.beside_count; i++)
        MUST(cuCtxDestroy(hammer.beside[i].context));
    MUST(cuCtxSetCurrent(hammer.context));
    if (draw(hand, 2))
        MUST(cuCtxSynchronize());
    if (!is_primary)
        MUST(cuCtxDestroy(hammer.context));
    else if (draw(hand, 2))
        MUST(cuDevicePrimaryCtxReset(0));
    else
        MUST(cuDevicePrimaryCtxRelease(0));
}

static void live(void) {
    pthread_t threads[MOST_THREADS];
    struct hand *hand = &hammer.hands[0];
    bool is_primary = draw(hand, 2);
    begin(is_primary);
    for (unsigned i = 1; i < hammer.thread_count; i++)
        if (pthread_create(&threads[i], NULL, work, &hammer.hands[i]) != 0)
            abort();
    work(hand);
    for (unsigned i = 1; i < hammer.thread_count; i++)
        pthread_join(threads[i], NULL);
    end(hand, is_primary);
}

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    uint64_t seed = strtoull(arguments[1], NULL, 10);
    hammer.end_ns = now_ns() + strtoull(arguments[2], NULL, 10) * 1000000000u;
    hammer.thread_count = (unsigned)strtoul(arguments[3], NULL, 10);
    if (hammer.thread_count < 1 || hammer.thread_count > MOST_THREADS)
        return 2;
    for (unsigned i = 0; i < hammer.thread_count; i++)
        hammer.hands[i].drawn = seed * MOST_THREADS + i;
    MUST(cuInit(0));
    while (now_ns() < hammer.end_ns)
        live();
    unsigned launches = 0;
    for (unsigned i = 0; i < hammer.thread_count; i++)
        launches += hammer.hands[i].launches;
    printf("settled %u\n", launches);
    fflush(stdout);
    return getchar() == EOF ? 0 : 4;
}
