/* Modes of two GPUs of which neither progresses without the other: each runs a kernel, and then one that
 * spins until the other GPU's has started, as a collective's do.
 *
 *   collective   one thread launches on both
 *   ranks        a process for each GPU, as data-parallel training has it */
#define _GNU_SOURCE
#include "tenant.h"

#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GPUS = 2, AHEAD = 8, PAGE_BYTES = 4096, NUMBER_CHARS = 24 };

/* Both processes take the same steps: the first one says which. */
struct page {
    uint32_t started[GPUS]; /* steps; written and waited for on the devices */
    atomic_long agreed;     /* steps that both will take at least, */
    atomic_bool is_over;    /* and at most */
};

struct rank {
    int gpu;
    CUcontext context;
    CUfunction busy, spin;
    struct queue queue;
    struct page *page;
    CUdeviceptr started[GPUS];
};

static struct page *page_in(int file) {
    struct page *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        exit(3);
    return page;
}

static int page_file(void) {
    FILE *file = tmpfile(); /* stays open: the other process inherits it */
    if (!file || ftruncate(fileno(file), PAGE_BYTES) != 0)
        exit(3);
    return fileno(file);
}

static struct rank rank_new(int gpu, struct page *page) {
    struct rank rank = {.gpu = gpu, .page = page};
    CUdevice device;
    MUST(cuDeviceGet(&device, gpu));
    MUST(cuDevicePrimaryCtxRetain(&rank.context, device));
    MUST(cuCtxSetCurrent(rank.context));
    rank.busy = device_kernel("busy");
    rank.spin = device_kernel("spin");
    rank.queue = queue_new(stream_new(), AHEAD);
    CUresult result =
        cuMemHostRegister(page, PAGE_BYTES, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
        must(result, "cuMemHostRegister");
    for (int i = 0; i < GPUS; i++)
        MUST(cuMemHostGetDevicePointer(&rank.started[i], &page->started[i], 0));
    return rank;
}

static void rank_free(const struct rank *rank) {
    MUST(cuCtxSetCurrent(rank->context));
    queue_free(&rank->queue);
    MUST(cuStreamDestroy(rank->queue.stream));
    MUST(cuDevicePrimaryCtxRelease(rank->gpu));
}

static void take_step(const struct rank *rank, uint64_t step) {
    const struct queue *queue = &rank->queue;
    uint32_t value = (uint32_t)step;
    MUST(cuCtxSetCurrent(rank->context));
    queue_wait(queue, step);
    launch_on(rank->busy, queue->stream, 2 * order.kernel_ns);
    launch_spin(
        rank->spin, queue->stream,
        (struct spin){order.kernel_ns, rank->started[1 - rank->gpu], value, rank->started[rank->gpu], value});
    queue_mark(queue, step);
    done.kernels += 2;
}

static void work_collective(void) {
    struct page *page = page_in(page_file());
    struct rank ranks[GPUS];
    for (int gpu = 0; gpu < GPUS; gpu++)
        ranks[gpu] = rank_new(gpu, page);
    sleep_until(order.begin_ns);
    for (uint64_t step = 1; now_ns() < order.end_ns; step++) {
        for (int gpu = 0; gpu < GPUS; gpu++)
            take_step(&ranks[gpu], step);
        count_step();
    }
    for (int gpu = 0; gpu < GPUS; gpu++)
        rank_free(&ranks[gpu]);
    MUST(cuCtxSetCurrent(context));
}

static void agree(struct page *page, long step) {
    if (now_ns() >= order.end_ns)
        atomic_store(&page->is_over, true);
    else
        atomic_store(&page->agreed, step);
}

static bool is_agreed(struct page *page, long step) {
    while (step > atomic_load(&page->agreed)) {
        if (atomic_load(&page->is_over) && step > atomic_load(&page->agreed))
            return false;
        pause_for(100 * US);
    }
    return true;
}

static void take_rank(int gpu, struct page *page) {
    struct rank rank = rank_new(gpu, page);
    sleep_until(order.begin_ns);
    for (long step = 1;; step++) {
        if (gpu == 0)
            agree(page, step);
        if (!is_agreed(page, step))
            break;
        take_step(&rank, (uint64_t)step);
        count_step();
    }
    rank_free(&rank);
}

static void print_number(char *text, uint64_t value) {
    snprintf(text, NUMBER_CHARS, "%llu", (unsigned long long)value);
}

static pid_t start_other(int file) {
    char name[] = "share_task", rank[] = "rank";
    char numbers[3][NUMBER_CHARS];
    char *arguments[] = {name, rank, numbers[0], numbers[1], numbers[2], NULL};
    pid_t pid;
    print_number(numbers[0], (uint64_t)file);
    print_number(numbers[1], order.kernel_ns);
    print_number(numbers[2], order.begin_ns);
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ) != 0)
        exit(3);
    return pid;
}

static void work_ranks(void) {
    int file = page_file(), status;
    done.other_pid = start_other(file);
    take_rank(0, page_in(file));
    MUST(cuCtxSetCurrent(context));
    if (waitpid(done.other_pid, &status, 0) != done.other_pid || status != 0)
        exit(3);
}

int rank_main(char **arguments) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* alone the process would wait for ever */
    order.kernel_ns = strtoull(arguments[3], NULL, 10);
    order.begin_ns = strtoull(arguments[4], NULL, 10);
    MUST(cuInit(0));
    take_rank(1, page_in(atoi(arguments[2])));
    return 0;
}

const struct mode rank_modes[] = {
    {"collective", work_collective, true},
    {"ranks", work_ranks, true},
    {NULL, NULL, false},
};
