/* A thread that was asked to end launches while its gate is shut: it ends where it says so itself, not within
 * the launch. Its thread-local data are larger than a small stack. Linked against the driver.
 *
 * Prints "ended 1" when that thread ended where it should, then the result of the next thread's launch.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char large[1 << 20];

static CUcontext context;
static CUfunction kernel;

static void must(CUresult result) {
    if (result != CUDA_SUCCESS)
        exit(3);
}

static CUresult launch(void) {
    unsigned long long length_ns = 1000;
    void *parameters[] = {&length_ns};
    return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

static void *run(void *unused) {
    (void)unused;
    memset(large, 1, sizeof(large));
    must(cuCtxSetCurrent(context));
    pthread_cancel(pthread_self());
    must(launch());
    pthread_testcancel();
    return NULL;
}

int main(void) {
    CUmodule module;
    pthread_t thread;
    void *result;
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
    must(cuModuleLoadData(&module, "any image"));
    must(cuModuleGetFunction(&kernel, module, "busy"));
    if (pthread_create(&thread, NULL, run, NULL) != 0 || pthread_join(thread, &result) != 0)
        return 4;
    printf("ended %d\n", result == PTHREAD_CANCELED);
    fflush(stdout);
    printf("launch %d\n", launch());
    return 0;
}
