/* One container's work on two GPUs, neither of which progresses without the other: `gangs HOW KERNEL_US
 * PAGE`.
 *
 *   one     one thread, which launches on GPU 0 and then on GPU 1
 *   two     a thread for each GPU
 *   0, 1    that GPU's part alone; another process with the same page does the other part
 *   solo    GPU 0's part, which waits for nothing; GPU 1 has a context, and no work
 *
 * A step on a GPU is a short kernel, after which the device writes this GPU's step, and a longer kernel that
 * waits on the device until the other GPU's step is as high, as a collective's kernels do. The flags lie in
 * PAGE, a file that all processes map. All end after the same step once the page's first word is set; then
 * they print one line, `ok N`, with that step. They know nothing of the preload library. */
#define _GNU_SOURCE
#include <cuda.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GPUS = 2, RING = 8, ENTRY_US = 20, PAGE_BYTES = 4096 };

/* Both sides do the same steps; GPU 0's side sets the last one. */
static struct page {
    _Atomic uint32_t is_enough; /* set by the test */
    uint32_t come[GPUS];        /* written and waited for on the devices */
    atomic_long agreed;         /* the steps that both do at least, */
    atomic_bool is_over;        /* and at most */
} *page;

static struct side {
    int gpu;
    CUcontext context;
    CUfunction kernel;
    CUstream stream;
    CUevent ring[RING];
    CUdeviceptr come[GPUS];
} sides[GPUS];

static uint64_t kernel_us;
static bool is_alone;

static void fail(const char *what, long got) {
    fprintf(stderr, "gangs: %s: %ld\n", what, got);
    _exit(3);
}

static void must(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS)
        fail(what, result);
}

#define MUST(call) must(call, #call)

static void map_page(const char *path) {
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, PAGE_BYTES) != 0)
        fail("the page", errno);
    page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        fail("the page", errno);
    close(file);
}

static void prepare(int gpu) {
    struct side *side = &sides[gpu];
    CUmodule module;
    side->gpu = gpu;
    MUST(cuDevicePrimaryCtxRetain(&side->context, gpu));
    MUST(cuCtxSetCurrent(side->context));
    MUST(cuModuleLoadData(&module, "any image"));
    MUST(cuModuleGetFunction(&side->kernel, module, "busy"));
    MUST(cuStreamCreate(&side->stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < RING; i++)
        MUST(cuEventCreate(&side->ring[i], CU_EVENT_DISABLE_TIMING));
    CUresult result = cuMemHostRegister(page, PAGE_BYTES, CU_MEMHOSTREGISTER_PORTABLE);
    if (result != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
        must(result, "cuMemHostRegister");
    for (int other = 0; other < GPUS; other++)
        MUST(cuMemHostGetDevicePointer(&side->come[other], &page->come[other], 0));
}

static void launch(const struct side *side, uint64_t us) {
    uint64_t length_ns = us * 1000;
    void *parameters[] = {&length_ns};
    MUST(cuLaunchKernel(side->kernel, 1, 1, 1, 1, 1, 1, 0, side->stream, parameters, NULL));
}

/* This GPU's part of a step; a few steps may be queued. */
static void do_part(struct side *side, long step) {
    MUST(cuCtxSetCurrent(side->context));
    if (step > RING)
        MUST(cuEventSynchronize(side->ring[step % RING]));
    launch(side, ENTRY_US);
    MUST(cuStreamWriteValue32(side->stream, side->come[side->gpu], (cuuint32_t)step, 0));
    if (!is_alone)
        MUST(cuStreamWaitValue32(side->stream, side->come[1 - side->gpu], (cuuint32_t)step,
                                 CU_STREAM_WAIT_VALUE_GEQ));
    launch(side, kernel_us);
    MUST(cuEventRecord(side->ring[step % RING], side->stream));
}

static void agree(long step) {
    if (atomic_load(&page->is_enough))
        atomic_store(&page->is_over, true);
    else
        atomic_store(&page->agreed, step + RING);
}

/* Whether both sides still do this step. */
static bool is_agreed(long step) {
    while (step > atomic_load(&page->agreed)) {
        if (atomic_load(&page->is_over) && step > atomic_load(&page->agreed))
            return false;
        usleep(100);
    }
    return true;
}

static void finish(const struct side *side, long step) {
    MUST(cuCtxSetCurrent(side->context));
    MUST(cuStreamSynchronize(side->stream));
    if (page->come[side->gpu] != (uint32_t)step)
        fail("the last step of a GPU", page->come[side->gpu]);
}

static long take_side(struct side *side) {
    long step = 1;
    for (;; step++) {
        if (side->gpu == 0)
            agree(step);
        if (!is_agreed(step))
            break;
        do_part(side, step);
    }
    finish(side, step - 1);
    return step - 1;
}

static void *take_side_beside(void *side) {
    take_side(side);
    return NULL;
}

static long both_by_turns(void) {
    long step = 1;
    for (; !atomic_load(&page->is_enough); step++) {
        do_part(&sides[0], step);
        do_part(&sides[1], step);
    }
    finish(&sides[0], step - 1);
    finish(&sides[1], step - 1);
    return step - 1;
}

static long both_at_once(void) {
    pthread_t other;
    if (pthread_create(&other, NULL, take_side_beside, &sides[1]) != 0)
        fail("pthread_create", errno);
    long steps = take_side(&sides[0]);
    pthread_join(other, NULL);
    return steps;
}

static long work(const char *how) {
    if (strcmp(how, "0") == 0 || strcmp(how, "1") == 0) {
        int gpu = how[0] - '0';
        prepare(gpu);
        return take_side(&sides[gpu]);
    }
    prepare(0);
    prepare(1);
    is_alone = strcmp(how, "solo") == 0;
    if (is_alone)
        return take_side(&sides[0]);
    return strcmp(how, "two") == 0 ? both_at_once() : both_by_turns();
}

int main(int count, char **arguments) {
    if (count != 4)
        fail("usage: gangs HOW KERNEL_US PAGE", count);
    kernel_us = strtoull(arguments[2], NULL, 10);
    map_page(arguments[3]);
    MUST(cuInit(0));
    printf("ok %ld\n", work(arguments[1]));
    return 0;
}
