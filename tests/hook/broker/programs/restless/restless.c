/* Ordinary programs of every sort that compute shares might break: `restless WHAT SECONDS`.
 *
 * Each works for this long, checks every result of the driver and all data that it moved, and prints one
 * line: `ok N`, with the number of its rounds. Any error goes to standard error, and the program exits
 * with 3. The programs know nothing of the preload library. */
#define _GNU_SOURCE
#include "restless.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t end_ns;
CUcontext context;
CUmodule module;
CUfunction kernel;
const char *own_path;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool goes_on(void) {
    return now_ns() < end_ns;
}

void fail(const char *what, long got) {
    fprintf(stderr, "restless: %s: %ld\n", what, got);
    _exit(3);
}

void must(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS)
        fail(what, result);
}

static void begin(int device) {
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, "any image"));
    MUST(cuModuleGetFunction(&kernel, module, "busy"));
}

void launch(CUstream stream, uint64_t us) {
    uint64_t length_ns = us * 1000;
    void *parameters[] = {&length_ns};
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

CUstream stream_new(void) {
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

CUdeviceptr memory_new(void) {
    CUdeviceptr address;
    MUST(cuMemAlloc(&address, WORDS * sizeof(uint32_t)));
    return address;
}

void check(CUdeviceptr address, uint32_t value, CUstream stream) {
    uint32_t words[WORDS];
    MUST(cuMemcpyDtoHAsync(words, address, sizeof words, stream));
    MUST(cuStreamSynchronize(stream));
    for (int i = 0; i < WORDS; i++)
        if (words[i] != value)
            fail("a word on the device is wrong", (long)words[i]);
}

pthread_t start(void *(*body)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument) != 0)
        fail("pthread_create", errno);
    return thread;
}

void *launch_beside(void *unused) {
    (void)unused;
    MUST(cuCtxSetCurrent(context));
    CUstream stream = stream_new();
    while (goes_on())
        launch(stream, SHORT_US);
    return NULL;
}

static const struct sort *find(const struct sort *sorts, const char *name) {
    while (sorts->name && strcmp(sorts->name, name) != 0)
        sorts++;
    return sorts->name ? sorts : NULL;
}

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
    const struct sort *sort = find(stream_sorts, arguments[1]);
    if (!sort)
        sort = find(process_sorts, arguments[1]);
    if (!sort)
        fail("no such sort", 0);
    printf("ok %ld\n", sort->run());
    fflush(stdout);
    return 0;
}
