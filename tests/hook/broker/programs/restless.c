/* Ordinary programs of every sort that compute shares could break: `restless WHAT SECONDS`.
 *
 * Each works for so long, checks every result of the driver and all data that it moved, and prints one line:
 * `ok N`, N being how often it came round. Anything else is said on standard error, and exits with 3. They
 * know nothing of the preload library. */
#define _GNU_SOURCE
#include <cuda.h>

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, STREAMS = 4, WORDS = 1024, SHORT_US = 50, LONG_US = 1000 };

static uint64_t end_ns;
static CUcontext context;
static CUmodule module;
static CUfunction kernel;
static const char *own_path;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool goes_on(void) {
    return now_ns() < end_ns;
}

static void fail(const char *what, long got) {
    fprintf(stderr, "restless: %s: %ld\n", what, got);
    _exit(3);
}

static void must(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS)
        fail(what, result);
}

#define MUST(call) must(call, #call)

static void begin(int device) {
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, "any image"));
    MUST(cuModuleGetFunction(&kernel, module, "busy"));
}

static void launch(CUstream stream, uint64_t us) {
    uint64_t length_ns = us * 1000;
    void *parameters[] = {&length_ns};
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static CUstream stream_new(void) {
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUdeviceptr memory_new(void) {
    CUdeviceptr address;
    MUST(cuMemAlloc(&address, WORDS * sizeof(uint32_t)));
    return address;
}

static CUevent event_new(void) {
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

/* All words of a piece of memory hold the value. */
static void check(CUdeviceptr address, uint32_t value, CUstream stream) {
    uint32_t words[WORDS];
    MUST(cuMemcpyDtoHAsync(words, address, sizeof words, stream));
    MUST(cuStreamSynchronize(stream));
    for (int i = 0; i < WORDS; i++)
        if (words[i] != value)
            fail("a word on the device is wrong", (long)words[i]);
}

static pthread_t start(void *(*body)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument) != 0)
        fail("pthread_create", errno);
    return thread;
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

/* Launch and wait. */
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

static void *launch_beside(void *unused) {
    (void)unused;
    MUST(cuCtxSetCurrent(context));
    CUstream stream = stream_new();
    while (goes_on())
        launch(stream, SHORT_US);
    return NULL;
}

/* One thread captures, and launches what it captured, while another launches all the time. */
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

static atomic_long rounds_of_all;

static void *work_alone(void *unused) {
    (void)unused;
    MUST(cuCtxSetCurrent(context));
    CUstream stream = stream_new();
    CUdeviceptr memory = memory_new(), copy = memory_new();
    for (uint32_t round = 0; goes_on(); round++) {
        MUST(cuMemsetD32Async(memory, round, WORDS, stream));
        launch(stream, SHORT_US);
        MUST(cuMemcpyDtoDAsync(copy, memory, WORDS * sizeof(uint32_t), stream));
        launch(stream, SHORT_US);
        check(copy, round, stream);
        atomic_fetch_add(&rounds_of_all, 1);
    }
    return NULL;
}

/* Eight threads, each with a stream of its own. */
static long threads(void) {
    pthread_t all[THREADS];
    for (int i = 0; i < THREADS; i++)
        all[i] = start(work_alone, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(all[i], NULL);
    return atomic_load(&rounds_of_all);
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

/* What the other stream waits for on the device comes from here, later. */
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

/* A stream that waits on the device for what this thread says once it has launched more than may be queued.
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

static void reap(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            fail("waitpid", errno);
    if (status != 0)
        fail("a child's status", status);
}

/* Children that never become another program, some of which ask the driver, while work is under way. */
static long forks(void) {
    CUstream stream = stream_new();
    CUdeviceptr memory = memory_new();
    pthread_t beside = start(launch_beside, NULL);
    long rounds = 0;
    for (; goes_on(); rounds++) {
        launch(stream, LONG_US);
        pid_t child = fork();
        if (child == 0 && rounds % 2)
            _exit(cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED ? 0 : 4);
        if (child == 0)
            exit(0);
        MUST(cuMemsetD32Async(memory, (uint32_t)rounds, WORDS, stream));
        check(memory, (uint32_t)rounds, stream);
        reap(child);
    }
    pthread_join(beside, NULL);
    return rounds;
}

/* Children that become programs of their own and use the GPU too. */
static long execs(void) {
    CUstream stream = stream_new();
    long rounds = 0;
    for (; goes_on(); rounds++) {
        launch(stream, LONG_US);
        pid_t child = fork();
        if (child == 0) {
            execl(own_path, own_path, "brief", "0", (char *)NULL);
            _exit(5);
        }
        for (int i = 0; i < 20; i++)
            launch(stream, LONG_US);
        MUST(cuStreamSynchronize(stream));
        reap(child);
    }
    return rounds;
}

/* A process that lives for a few milliseconds of work. */
static long brief(void) {
    CUstream stream = stream_new();
    CUdeviceptr memory = memory_new();
    for (uint32_t i = 0; i < 10; i++) {
        launch(stream, SHORT_US);
        MUST(cuMemsetD32Async(memory, i, WORDS, stream));
    }
    check(memory, 9, stream);
    return 1;
}

/* Leaves with work queued. */
static long leaves(void) {
    CUstream stream = stream_new();
    while (goes_on())
        launch(stream, LONG_US);
    for (int i = 0; i < 200; i++)
        launch(stream, LONG_US);
    return 1;
}

/* Contexts that come and go, with a thread that launches in each while it lives. */
static long contexts(void) {
    CUcontext primary = context;
    long rounds = 0;
    for (; goes_on(); rounds++) {
        CUcontext own;
        MUST(cuCtxCreate(&own, 0, 0));
        MUST(cuModuleLoadData(&module, "any image"));
        MUST(cuModuleGetFunction(&kernel, module, "busy"));
        CUstream stream = stream_new();
        CUdeviceptr memory = memory_new();
        for (int i = 0; i < 5; i++)
            launch(stream, LONG_US);
        MUST(cuMemsetD32Async(memory, (uint32_t)rounds, WORDS, stream));
        if (rounds % 2)
            check(memory, (uint32_t)rounds, stream);
        MUST(cuCtxDestroy(own));
        MUST(cuCtxSetCurrent(primary));
        if (rounds % 8 == 7)
            MUST(cuDevicePrimaryCtxReset(0));
    }
    return rounds;
}

/* A descriptor that is not the emulated driver's: losing that would be the program's own ruin. */
static bool may_close(int descriptor) {
    char path[64], target[512];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0)
        return false;
    target[length] = '\0';
    return !strstr(target, ".state");
}

static void close_all(void) {
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        int descriptor = atoi(entry->d_name);
        if (descriptor >= 3 && descriptor != dirfd(folder) && may_close(descriptor))
            close(descriptor);
    }
    closedir(folder);
}

/* Closes all descriptors from 3 on, and fills the numbers with sockets of its own, on which nothing may come.
 */
static long closes(void) {
    CUstream stream = stream_new();
    CUdeviceptr memory = memory_new();
    long rounds = 0;
    for (; goes_on(); rounds++) {
        int pair[2], copies[128];
        launch(stream, LONG_US);
        close_all();
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0)
            fail("socketpair", errno);
        for (int i = 0; i < 128; i++)
            copies[i] = dup(pair[0]);
        for (int i = 0; i < 10; i++)
            launch(stream, LONG_US);
        MUST(cuMemsetD32Async(memory, (uint32_t)rounds, WORDS, stream));
        check(memory, (uint32_t)rounds, stream);
        char heard[512];
        ssize_t length = recv(pair[1], heard, sizeof heard, MSG_DONTWAIT);
        if (length >= 0)
            fail("a stranger wrote into the program's socket", (long)length);
        for (int i = 0; i < 128; i++)
            close(copies[i]);
    }
    return rounds;
}

static atomic_long alarms;

static void on_alarm(int number) {
    (void)number;
    atomic_fetch_add(&alarms, 1);
}

/* A thousand signals a second, none of which restarts what it interrupts. */
static long alarmed(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval timer = {.it_interval = {.tv_usec = 1000}, .it_value = {.tv_usec = 1000}};
    if (sigaction(SIGALRM, &action, NULL) != 0 || setitimer(ITIMER_REAL, &timer, NULL) != 0)
        fail("setitimer", errno);
    threads();
    timer = (struct itimerval){0};
    setitimer(ITIMER_REAL, &timer, NULL);
    return atomic_load(&alarms) > 100 ? atomic_load(&rounds_of_all) : 0;
}

/* Every signal blocked from the start. */
static long deaf(void) {
    return threads();
}

/* Two GPUs, each round needing both, one after the other and at once: as a collective does. */
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

static const struct {
    const char *name;
    long (*run)(void);
} sorts[] = {
    {"greedy", greedy},
    {"polite", polite},
    {"capture-global", capture_global},
    {"capture-thread-local", capture_thread_local},
    {"capture-relaxed", capture_relaxed},
    {"callbacks", callbacks},
    {"priorities", priorities},
    {"threads", threads},
    {"pipeline", pipeline},
    {"later", later},
    {"flag", flag},
    {"forks", forks},
    {"execs", execs},
    {"brief", brief},
    {"leaves", leaves},
    {"contexts", contexts},
    {"closes", closes},
    {"alarmed", alarmed},
    {"deaf", deaf},
    {"collective", collective},
};

int main(int count, char **arguments) {
    if (count != 3)
        fail("usage: restless WHAT SECONDS", count);
    own_path = arguments[0];
    if (strcmp(arguments[1], "deaf") == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
    }
    begin(0);
    end_ns = now_ns() + (uint64_t)(atof(arguments[2]) * 1e9);
    for (size_t i = 0; i < sizeof sorts / sizeof sorts[0]; i++) {
        if (strcmp(arguments[1], sorts[i].name) != 0)
            continue;
        printf("ok %ld\n", sorts[i].run());
        fflush(stdout);
        return 0;
    }
    fail("no such sort", 0);
}
