/* Launches, waits, captures, makes and ends streams and contexts from many threads, while its gate changes.
 *
 *     gate_hammer SEED SECONDS THREADS
 *
 * A life is one context, primary or created, with a stream of its own for each thread and one that all share;
 * some contexts end with work under way. When the time is over it waits for all, prints `settled` and how
 * often it launched, and ends with its standard input.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MOST_THREADS 8
#define BYTES 4096

/* The header has these names only as macros over the others. */
CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             CUstream, void **, void **);
CUresult cuStreamSynchronize_ptsz(CUstream);
CUresult cuMemsetD8Async_ptsz(CUdeviceptr, unsigned char, size_t, CUstream);

struct hand {
    uint64_t drawn;
    unsigned launches;
    CUstream stream;
    CUdeviceptr memory;
};

static struct {
    uint64_t end_ns;
    unsigned thread_count;
    CUcontext context;
    CUfunction kernel;
    CUstream shared;
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

static void use_default(struct hand *hand) {
    unsigned long long length_ns = 20000;
    void *parameters[] = {&length_ns};
    MUST(cuLaunchKernel_ptsz(hammer.kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    MUST(cuMemsetD8Async_ptsz(hand->memory, 1, BYTES, NULL));
    if (draw(hand, 2))
        MUST(cuStreamSynchronize_ptsz(NULL));
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

static void *work(void *argument) {
    struct hand *hand = argument;
    MUST(cuCtxSetCurrent(hammer.context));
    for (unsigned left = 5 + draw(hand, 60); left > 0 && now_ns() < hammer.end_ns; left--)
        switch (draw(hand, 9)) {
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
            launch_row(hand, hammer.shared);
            break;
        case 6:
            MUST(cuStreamSynchronize(hand->stream));
            break;
        default:
            launch_row(hand, hand->stream);
        }
    return NULL;
}

/* --- one life ---------------------------------------------------------------------------------------------
 */

static void begin(bool is_primary) {
    CUmodule module;
    if (is_primary)
        MUST(cuDevicePrimaryCtxRetain(&hammer.context, 0));
    else
        MUST(cuCtxCreate(&hammer.context, 0, 0));
    MUST(cuCtxSetCurrent(hammer.context));
    MUST(cuModuleLoadData(&module, "any image"));
    MUST(cuModuleGetFunction(&hammer.kernel, module, "busy"));
    MUST(cuStreamCreate(&hammer.shared, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < hammer.thread_count; i++) {
        MUST(cuStreamCreate(&hammer.hands[i].stream, CU_STREAM_NON_BLOCKING));
        MUST(cuMemAlloc(&hammer.hands[i].memory, BYTES));
    }
}

static void end(struct hand *hand, bool is_primary) {
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
