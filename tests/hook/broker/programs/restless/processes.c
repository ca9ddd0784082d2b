/* Restless programs with threads, children, contexts, descriptors and signals. */
#define _GNU_SOURCE
#include "restless.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8 };

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

static void reap(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            fail("waitpid", errno);
    if (status != 0)
        fail("a child's status", status);
}

/* Children without an exec, some of which call the driver, while work is under way. */
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

/* Children that exec programs which use the GPU too. */
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

/* Exits with work queued. */
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

/* Whether a descriptor is not the emulated driver's, without which the program could not go on. */
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

/* Closes all descriptors from 3 on, and opens sockets with their numbers. No data may arrive on these. */
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

/* A thousand signals a second, which interrupt system calls without a restart. */
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

/* Blocks every signal from the start. */
static long deaf(void) {
    return threads();
}

const struct sort process_sorts[] = {
    {"threads", threads},   {"forks", forks},   {"execs", execs},     {"brief", brief}, {"leaves", leaves},
    {"contexts", contexts}, {"closes", closes}, {"alarmed", alarmed}, {"deaf", deaf},   {NULL, NULL},
};
