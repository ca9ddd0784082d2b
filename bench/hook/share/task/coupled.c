/* Modes whose work waits for itself, so that a program held at the wrong moment waits for a launch of its
 * own that would have come next.
 *
 *   gil          `each` threads, which hold one lock while they launch five kernels; a host function queued
 *                behind those takes that lock, too, as a callback into Python does
 *   streams      one thread, two streams: one waits on the device for a word that the other writes `each`
 *                launches later; each step is waited for (`streams-ahead`: four steps are queued)
 *   events       one thread, two streams, of which each waits for the other's event; four steps are queued
 *   persistent   a kernel that spins until the last of `each` later launches has run */
#define _GNU_SOURCE
#include "tenant.h"

#include <pthread.h>
#include <string.h>

enum { THREADS = 8, GIL_KERNELS = 5, AHEAD = 4, GIL_AHEAD = 8 };

#define HOST_FUNCTION_NS (100 * US)
#define BETWEEN_STEPS_NS (20 * US)
#define BETWEEN_LAUNCHES_NS (200 * US)
#define PERSISTENT_NS (100 * US)

/* Streams and kernels wait for this word. It only grows, from order to order. */
static CUdeviceptr word;
static uint32_t grown;

static void make_word(void) {
    void *host;
    if (word)
        return;
    MUST(cuMemHostAlloc(&host, sizeof grown, CU_MEMHOSTALLOC_DEVICEMAP));
    memset(host, 0, sizeof grown);
    MUST(cuMemHostGetDevicePointer(&word, host, 0));
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Computes and does not sleep, as a callback does. */
static void compute_for(uint64_t ns) {
    uint64_t end_ns = now_ns() + ns;
    while (now_ns() < end_ns)
        ;
}

static void CUDA_CB take_lock(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    compute_for(HOST_FUNCTION_NS);
    pthread_mutex_unlock(&lock);
}

static void take_gil_step(const struct queue *queue, CUfunction busy, uint64_t step) {
    queue_wait(queue, step);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < GIL_KERNELS; i++)
        launch_on(busy, queue->stream, order.kernel_ns);
    MUST(cuLaunchHostFunc(queue->stream, take_lock, NULL));
    queue_mark(queue, step);
    done.kernels += GIL_KERNELS;
    count_step();
    pthread_mutex_unlock(&lock);
    pause_for(BETWEEN_STEPS_NS);
}

static void *work_under_lock(void *unused) {
    (void)unused;
    MUST(cuCtxSetCurrent(context));
    struct queue queue = queue_new(stream_new(), GIL_AHEAD);
    CUfunction busy = device_kernel("busy");
    for (uint64_t step = 1; now_ns() < order.end_ns; step++)
        take_gil_step(&queue, busy, step);
    queue_free(&queue);
    MUST(cuStreamDestroy(queue.stream));
    return NULL;
}

static void work_gil(void) {
    pthread_t others[THREADS];
    size_t count = (size_t)between(order.each, 1, THREADS) - 1;
    for (size_t i = 0; i < count; i++)
        if (pthread_create(&others[i], NULL, work_under_lock, NULL) != 0)
            exit(3);
    work_under_lock(NULL);
    for (size_t i = 0; i < count; i++)
        pthread_join(others[i], NULL);
}

static void launch_many(uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        launch(order.kernel_ns);
    done.kernels += count;
}

/* Runs with this many steps queued. */
static void take_streams(unsigned deepest) {
    CUstream waiting = stream_new();
    CUfunction busy = device_kernel("busy");
    struct queue queue = queue_new(stream, deepest);
    make_word();
    for (uint64_t step = 1; now_ns() < order.end_ns; step++) {
        queue_wait(&queue, step);
        MUST(cuStreamWaitValue32(waiting, word, ++grown, CU_STREAM_WAIT_VALUE_GEQ));
        launch_on(busy, waiting, order.kernel_ns);
        launch_many(order.each);
        MUST(cuStreamWriteValue32(stream, word, grown, 0));
        queue_mark(&queue, step);
        done.kernels++;
        count_step();
    }
    MUST(cuStreamSynchronize(waiting));
    queue_free(&queue);
}

static void work_streams(void) {
    take_streams(1);
}

static void work_streams_ahead(void) {
    take_streams(AHEAD);
}

static void work_events(void) {
    CUstream waiting = stream_new();
    CUfunction busy = device_kernel("busy");
    struct queue queue = queue_new(stream, AHEAD);
    CUevent there, back;
    MUST(cuEventCreate(&there, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
    for (uint64_t step = 1; now_ns() < order.end_ns; step++) {
        queue_wait(&queue, step);
        launch_many(order.each);
        MUST(cuEventRecord(there, stream));
        MUST(cuStreamWaitEvent(waiting, there, 0));
        launch_on(busy, waiting, order.kernel_ns);
        MUST(cuEventRecord(back, waiting));
        MUST(cuStreamWaitEvent(stream, back, 0));
        queue_mark(&queue, step);
        done.kernels++;
        count_step();
    }
    queue_free(&queue);
}

static void work_persistent(void) {
    CUstream spinning = stream_new();
    CUfunction spin = device_kernel("spin");
    make_word();
    for (; now_ns() < order.end_ns; count_step()) {
        launch_spin(spin, spinning, (struct spin){PERSISTENT_NS, word, ++grown, 0, 0});
        for (uint64_t i = 0; i < order.each; i++) {
            launch_many(1);
            pause_for(BETWEEN_LAUNCHES_NS);
        }
        MUST(cuStreamWriteValue32(stream, word, grown, 0));
        MUST(cuStreamSynchronize(stream));
        MUST(cuStreamSynchronize(spinning));
    }
}

const struct mode coupled_modes[] = {
    {"gil", work_gil, false},
    {"streams", work_streams, false},
    {"streams-ahead", work_streams_ahead, false},
    {"events", work_events, false},
    {"persistent", work_persistent, false},
    {NULL, NULL, false},
};
