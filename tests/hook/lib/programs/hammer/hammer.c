/* Hammers a container's lines with everything that takes GPU memory, in whole blocks, so that not one byte
 * may pass.
 *
 *     hammer SEED SECONDS THREADS LARGEST_MIB PATH...
 *
 * A life is a row of contexts: primary or created, on one GPU after the other, each shared by a few threads
 * that take and give back at random; some are left with all that they hold, to die by destruction or reset.
 * Between two contexts it may fork (once CUDA runs, a child has none) or become another image of itself by
 * exec. With an odd seed it also forks before cuInit, and parent and child both hammer.
 *
 * When the time is over it gives everything back, prints `settled` and what was granted and refused as JSON,
 * and ends with its standard input. Without standard input it may end at any moment: it expects to be killed.
 */
#define _GNU_SOURCE
#include "paths.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 8
#define CHILD_VARIABLE "HAMMER_CHILD" /* set in children: their parent speaks for them */

static struct {
    char **arguments;
    uint64_t end_ns;
    unsigned thread_count;
    unsigned chosen[PATH_END];
    unsigned chosen_count;
    int device_count;
    bool may_fork;
    bool has_pools; /* some path takes from a pool */
    CUcontext context;
    struct hand hands[MOST_THREADS];
} hammer;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool is_over(void) {
    return now_ns() >= hammer.end_ns;
}

static void rest_ms(long duration_ms) {
    nanosleep(&(struct timespec){.tv_nsec = duration_ms * 1000000}, NULL);
}

/* --- one context -----------------------------------------------------------------------------------------
 */

static void *work(void *argument) {
    struct hand *hand = argument;
    unsigned steps = 20 + draw(hand, 200);
    MUST(cuCtxSetCurrent(hammer.context));
    for (unsigned i = 0; i < steps && !is_over(); i++) {
        if (hammer.has_pools && draw(hand, 16) == 0)
            stir_pools(hand);
        bool is_taken = draw(hand, 8) < 5 && take_any(hand);
        if (!is_taken && hand->item_count)
            give_back(hand, draw(hand, hand->item_count));
    }
    return NULL;
}

static void prepare(struct hand *hand, CUdevice device) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    cuuint64_t keep_bytes = (cuuint64_t)draw(hand, 5) << 24;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = device;
    hand->device = device;
    hand->other = (device + 1) % hammer.device_count;
    MUST(cuMemPoolCreate(&hand->pool, &props));
    MUST(cuMemPoolSetAttribute(hand->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep_bytes));
    MUST(cuStreamCreate(&hand->stream, CU_STREAM_NON_BLOCKING));
}

static void work_together(CUdevice device) {
    pthread_t threads[MOST_THREADS];
    for (unsigned i = 0; i < hammer.thread_count; i++) {
        struct hand *hand = &hammer.hands[i];
        prepare(hand, device);
        if (i && pthread_create(&threads[i], NULL, work, hand) != 0)
            abort();
    }
    work(&hammer.hands[0]);
    for (unsigned i = 1; i < hammer.thread_count; i++)
        pthread_join(threads[i], NULL);
}

static void give_everything_back(void) {
    for (unsigned i = 0; i < hammer.thread_count; i++)
        give_back_all(&hammer.hands[i]);
    for (unsigned i = 0; i < hammer.thread_count; i++) {
        MUST(cuMemPoolDestroy(hammer.hands[i].pool));
        MUST(cuStreamDestroy(hammer.hands[i].stream));
    }
}

/* `is_left`: nothing that lives in the context was given back before it ends. */
static void end_context(struct hand *main_hand, bool is_created, CUdevice device) {
    bool is_left = draw(main_hand, 2);
    if (!is_left)
        give_everything_back();
    if (is_created)
        MUST(cuCtxDestroy(hammer.context));
    else if (draw(main_hand, 2))
        MUST(cuDevicePrimaryCtxReset(device));
    else
        MUST(cuDevicePrimaryCtxRelease(device));
    for (unsigned i = 0; i < hammer.thread_count && is_left; i++) {
        forget_context(&hammer.hands[i]);
        MUST(cuMemPoolDestroy(hammer.hands[i].pool));
    }
    MUST(cuCtxSetCurrent(NULL));
}

static void live_in_one_context(struct hand *main_hand) {
    CUdevice device = (CUdevice)draw(main_hand, (unsigned)hammer.device_count);
    bool is_created = draw(main_hand, 2);
    CUresult made = is_created ? cuCtxCreate(&hammer.context, 0, device)
                               : cuDevicePrimaryCtxRetain(&hammer.context, device);
    if (!granted(made, "a context")) {
        rest_ms(5);
        return;
    }
    MUST(cuCtxSetCurrent(hammer.context));
    work_together(device);
    end_context(main_hand, is_created, device);
}

/* --- other processes -------------------------------------------------------------------------------------
 */

/* A child of a process with CUDA has none: whatever it asks for, it gets nothing, and takes nothing of its
 * parent's.
 */
static void fork_without_cuda(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr pointer = 0;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        bool is_refused = cuMemAlloc(&pointer, (size_t)2 << 20) != CUDA_SUCCESS;
        _exit(is_refused ? 0 : 4);
    }
    if (child > 0 && waitpid(child, &status, 0) == child && status != 0) {
        fprintf(stderr, "hammer: a forked child ended with %d\n", status);
        _exit(3);
    }
    usleep(250000); /* each took a slot, and the broker clears the dead one by one */
}

/* The same process, another image, with something still held. */
static void become_another(struct hand *hand) {
    char seed[32], seconds[32];
    uint64_t now = now_ns();
    CUcontext context;
    if (now >= hammer.end_ns || !granted(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain"))
        return;
    MUST(cuCtxSetCurrent(context));
    prepare(hand, 0);
    take_any(hand);
    snprintf(seed, sizeof(seed), "%u", draw(hand, 1u << 30) * 2); /* even: it has forked already */
    snprintf(seconds, sizeof(seconds), "%.3f", (double)(hammer.end_ns - now) / 1e9);
    hammer.arguments[1] = seed;
    hammer.arguments[2] = seconds;
    execv("/proc/self/exe", hammer.arguments);
    abort();
}

static void end_with_parent(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
}

/* True in the child. */
static bool fork_before_cuda(void) {
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        end_with_parent(parent);
        setenv(CHILD_VARIABLE, "1", 1); /* it may become another image, too */
    }
    return child == 0;
}

static void await_children(void) {
    int status;
    pid_t child;
    while ((child = wait(&status)) > 0)
        if (status != 0) {
            fprintf(stderr, "hammer: child %d ended with %d\n", (int)child, status);
            _exit(3);
        }
}

/* --- a life ----------------------------------------------------------------------------------------------
 */

static void add_path(unsigned path) {
    hammer.chosen[hammer.chosen_count++] = path;
    hammer.has_pools = hammer.has_pools || path >= PATH_async;
}

static void choose(int count, char **names) {
    for (int i = 0; i < count; i++)
        for (unsigned path = 0; path < PATH_END; path++)
            if (strcmp(names[i], path_names[path]) == 0)
                add_path(path);
}

static void read_arguments(int count, char **arguments) {
    if (count < 6) {
        fprintf(stderr, "usage: hammer SEED SECONDS THREADS LARGEST_MIB PATH...\n");
        exit(2);
    }
    int letters[2];
    uint64_t seed = strtoull(arguments[1], NULL, 10);
    hammer.arguments = arguments;
    hammer.end_ns = now_ns() + (uint64_t)(strtod(arguments[2], NULL) * 1e9);
    hammer.thread_count = (unsigned)strtoul(arguments[3], NULL, 10);
    hammer.may_fork = getenv("HAMMER_NO_FORK") == NULL;
    choose(count - 5, arguments + 5);
    if (hammer.thread_count < 1 || hammer.thread_count > MOST_THREADS || !hammer.chosen_count)
        exit(2);
    /* Shared with the child: what one of the two offers, either may pick up. */
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, letters) != 0)
        exit(2);
    if (seed % 2 && hammer.may_fork && fork_before_cuda())
        seed += 1u << 20;
    for (unsigned i = 0; i < hammer.thread_count; i++) {
        struct hand *hand = &hammer.hands[i];
        hand->letters_out = letters[0];
        hand->letters_in = letters[1];
        hand->random = (seed * MOST_THREADS + i + 1) * 0x9e3779b97f4a7c15u;
        hand->largest_mib = (unsigned)strtoul(arguments[4], NULL, 10);
        hand->chosen = hammer.chosen;
        hand->chosen_count = hammer.chosen_count;
    }
}

static void print_tallies(void) {
    printf("settled {");
    for (unsigned i = 0; i < PATH_END; i++)
        printf("%s\"%s\": [%llu, %llu]", i ? ", " : "", path_names[i], (unsigned long long)tallies[i].granted,
               (unsigned long long)tallies[i].refused);
    printf("}\n");
    fflush(stdout);
}

/* A device's own pools outlive every context, and keep what their thresholds say. */
static void trim_pools(void) {
    for (int device = 0; device < hammer.device_count; device++) {
        CUmemoryPool pool;
        MUST(cuDeviceGetDefaultMemPool(&pool, device));
        MUST(cuMemPoolTrimTo(pool, 0));
        MUST(cuDeviceGraphMemTrim(device));
    }
}

int main(int count, char **arguments) {
    read_arguments(count, arguments);
    struct hand *hand = &hammer.hands[0];
    MUST(cuInit(0));
    MUST(cuDeviceGetCount(&hammer.device_count));
    while (!is_over()) {
        live_in_one_context(hand);
        unsigned turn = hammer.may_fork ? draw(hand, 32) : 0;
        if (turn == 1)
            become_another(hand);
        else if (turn < 4 && turn)
            fork_without_cuda();
    }
    trim_pools();
    await_children();
    if (!getenv(CHILD_VARIABLE)) {
        print_tallies();
        while (getchar() != EOF)
            ;
    }
    return 0;
}
