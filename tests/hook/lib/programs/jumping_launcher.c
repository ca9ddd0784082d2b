/* A launch that waits at the gate until a signal handler leaves it by siglongjmp. Linked against the driver.
 *
 * Prints "alloc" and the result of an allocation of 1 GiB after the jump. */
#define _GNU_SOURCE
#include <cuda.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static sigjmp_buf before_launch;

static void must(CUresult result) {
    if (result != CUDA_SUCCESS)
        exit(3);
}

static void jump(int signal_number) {
    siglongjmp(before_launch, signal_number);
}

int main(void) {
    CUcontext context;
    CUmodule module;
    CUfunction kernel;
    CUdeviceptr memory;
    unsigned long long length_ns = 1000;
    void *parameters[] = {&length_ns};
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
    must(cuModuleLoadData(&module, "any image"));
    must(cuModuleGetFunction(&kernel, module, "busy"));
    signal(SIGALRM, jump);
    if (sigsetjmp(before_launch, 1) == 0)
        must(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    printf("alloc %d\n", cuMemAlloc(&memory, 1ull << 30));
    return 0;
}
