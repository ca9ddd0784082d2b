/* Forks again and again beside threads that launch. Each child calls `cuInit`. Linked against the driver.
 *
 * Says "wrong" and the number of children that did not get CUDA_ERROR_NOT_INITIALIZED in time, 1 at most. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define FORKS 200
#define PATIENCE_S 10

static CUcontext context;
static CUfunction kernel;
static int is_over;

static void must(CUresult result) {
    if (result != CUDA_SUCCESS)
        exit(3);
}

static void *launch(void *unused) {
    unsigned long long length_ns = 5000;
    void *parameters[] = {&length_ns};
    must(cuCtxSetCurrent(context));
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED))
        must(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    return unused;
}

static int child_result(void) {
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_S); /* ends a child that hangs */
        _exit((int)cuInit(0));
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void) {
    CUmodule module;
    pthread_t threads[THREADS];
    int wrong = 0;
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
    must(cuModuleLoadData(&module, "any image"));
    must(cuModuleGetFunction(&kernel, module, "busy"));
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, launch, NULL) != 0)
            return 4;
    for (int i = 0; i < FORKS && !wrong; i++)
        wrong += child_result() != (int)CUDA_ERROR_NOT_INITIALIZED;
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("wrong %d\n", wrong);
    return 0;
}
