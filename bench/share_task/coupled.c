/* Modes whose work waits for itself, so that a program held at the wrong moment waits for what it would have
 * launched next.
 *
 *   gil          `each` threads, which hold one lock while they launch five kernels; a host function queued
 *                behind those takes that lock, too, as a callback into Python does
 *   streams      one thread, two streams: one waits on the device for a word that the other writes `each`
 *                launches later; each step is waited for (`streams-ahead`: four steps are queued)
 *   events       one thread, two streams, of which each waits for the other's event; four steps are queued
 *   collective   a kernel on each of two GPUs that spins until both have started
 *   persistent   a kernel that spins until the last of `each` later launches has run */
#define _GNU_SOURCE
#include "tenant.h"

#include <pthread.h>

enum { GPUS = 2, DEEPEST = 8, THREADS = 8, GIL_KERNELS = 5 };

#define HOST_FUNCTION_NS (100 * US)
#define BETWEEN_STEPS_NS (20 * US)
#define BETWEEN_LAUNCHES_NS (200 * US)
#define PERSISTENT_NS (100 * US)

static void pause_for(uint64_t ns) {
    sleep_until(now_ns() + ns);
}

/* So many steps of a stream may be queued. */
struct queue {
    CUstream stream;
    CUevent ends[DEEPEST];
    unsigned deepest;
};

static struct queue queue_new(CUstream on, unsigned deepest) {
    struct queue queue = {.stream = on, .deepest = deepest};
    for (unsigned i = 0; i < deepest; i++)
        MUST(cuEventCreate(&queue.ends[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    return queue;
}

static void queue_wait(const struct queue *queue, uint64_t step) {
    if (step > queue->deepest)
        MUST(cuEventSynchronize(queue->ends[step % queue->deepest]));
}

static void queue_mark(const struct queue *queue, uint64_t step) {
    MUST(cuEventRecord(queue->ends[step % queue->deepest], queue->stream));
}

static void queue_free(const struct queue *queue) {
    MUST(cuStreamSynchronize(queue->stream));
    for (unsigned i = 0; i < queue->deepest; i++)
        MUST(cuEventDestroy(queue->ends[i]));
}

static CUstream stream_new(void) {
    CUstream made;
    MUST(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
}

/* Words that GPUs write and wait for. They only grow, from order to order. */
static uint32_t *words;
static uint32_t grown;

static CUdeviceptr word(int number) {
    CUdeviceptr address;
    if (!words) {
        void *host;
        MUST(cuMemHostAlloc(&host, GPUS * sizeof words[0],
                            CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
        words = host;
        words[0] = words[1] = 0;
    }
    MUST(cuMemHostGetDevicePointer(&address, &words[number], 0));
    return address;
}

/* A kernel that stores `started` at `start` (0: nowhere), spins until the word at `address` has come to
 * `value`, and then works for `length_ns`. */
struct spin {
    uint64_t length_ns;
    CUdeviceptr address;
    uint32_t value;
    CUdeviceptr start;
    uint32_t started;
};

static void launch_spin(CUfunction function, CUstream on, struct spin spin) {
    void *parameters[] = {&spin.length_ns, &spin.address, &spin.value, &spin.start, &spin.started};
    MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, on, parameters, NULL));
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void CUDA_CB take_lock(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    pause_for(HOST_FUNCTION_NS);
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
    struct queue queue = queue_new(stream_new(), DEEPEST);
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

/* With so many steps queued. */
static void take_streams(unsigned deepest) {
    CUstream waiting = stream_new();
    CUfunction busy = device_kernel("busy");
    struct queue queue = queue_new(stream, deepest);
    for (uint64_t step = 1; now_ns() < order.end_ns; step++) {
        queue_wait(&queue, step);
        MUST(cuStreamWaitValue32(waiting, word(0), ++grown, CU_STREAM_WAIT_VALUE_GEQ));
        launch_on(busy, waiting, order.kernel_ns);
        launch_many(order.each);
        MUST(cuStreamWriteValue32(stream, word(0), grown, 0));
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
    take_streams(DEEPEST / 2);
}

static void work_events(void) {
    CUstream waiting = stream_new();
    CUfunction busy = device_kernel("busy");
    struct queue queue = queue_new(stream, DEEPEST / 2);
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

/* One GPU's part of a collective. */
struct rank {
    CUcontext context;
    CUfunction busy, spin;
    struct queue queue;
    CUdeviceptr words[GPUS];
};

static struct rank rank_new(int gpu) {
    struct rank rank;
    CUdevice device;
    MUST(cuDeviceGet(&device, gpu));
    MUST(cuDevicePrimaryCtxRetain(&rank.context, device));
    MUST(cuCtxSetCurrent(rank.context));
    rank.busy = device_kernel("busy");
    rank.spin = device_kernel("spin");
    rank.queue = queue_new(stream_new(), DEEPEST);
    for (int i = 0; i < GPUS; i++)
        rank.words[i] = word(i);
    return rank;
}

static void take_rank_step(const struct rank *rank, int gpu, uint64_t step) {
    MUST(cuCtxSetCurrent(rank->context));
    queue_wait(&rank->queue, step);
    launch_on(rank->busy, rank->queue.stream, 2 * order.kernel_ns);
    launch_spin(rank->spin, rank->queue.stream,
                (struct spin){order.kernel_ns, rank->words[1 - gpu], grown, rank->words[gpu], grown});
    queue_mark(&rank->queue, step);
    done.kernels += 2;
}

static void work_collective(void) {
    struct rank ranks[GPUS];
    for (int gpu = 0; gpu < GPUS; gpu++)
        ranks[gpu] = rank_new(gpu);
    sleep_until(order.begin_ns);
    for (uint64_t step = 1; now_ns() < order.end_ns; step++) {
        grown++;
        for (int gpu = 0; gpu < GPUS; gpu++)
            take_rank_step(&ranks[gpu], gpu, step);
        count_step();
    }
    for (int gpu = 0; gpu < GPUS; gpu++) {
        MUST(cuCtxSetCurrent(ranks[gpu].context));
        queue_free(&ranks[gpu].queue);
    }
    MUST(cuCtxSetCurrent(context));
}

static void work_persistent(void) {
    CUstream spinning = stream_new();
    CUfunction spin = device_kernel("spin");
    for (; now_ns() < order.end_ns; count_step()) {
        launch_spin(spin, spinning, (struct spin){PERSISTENT_NS, word(0), ++grown, 0, 0});
        for (uint64_t i = 0; i < order.each; i++) {
            launch_many(1);
            pause_for(BETWEEN_LAUNCHES_NS);
        }
        MUST(cuStreamWriteValue32(stream, word(0), grown, 0));
        MUST(cuStreamSynchronize(stream));
        MUST(cuStreamSynchronize(spinning));
    }
}

const struct mode coupled_modes[] = {
    {"gil", work_gil, false},
    {"streams", work_streams, false},
    {"streams-ahead", work_streams_ahead, false},
    {"events", work_events, false},
    {"collective", work_collective, true},
    {"persistent", work_persistent, false},
    {NULL, NULL, false},
};
