/* Launches while its gate is shut; a handler of its own forks it there. Linked against the driver.
 *
 * Says "ready", then at each SIGUSR1 what became of the child that the handler forked, and at last what the
 * launch answered. The child is to come out of the launch, and finds a driver that is not initialised.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CAME_OUT = 7 };

static volatile sig_atomic_t is_child;

static void fork_here(int number) {
    int status = -1;
    char line[] = "child 0\n";
    pid_t child = fork();
    (void)number;
    if (child == 0) {
        is_child = 1;
        return;
    }
    waitpid(child, &status, 0);
    line[6] = (char)('0' + (WIFEXITED(status) ? WEXITSTATUS(status) : 9));
    if (write(1, line, sizeof(line) - 1) < 0)
        _exit(4);
}

static void must(CUresult result) {
    if (result != CUDA_SUCCESS)
        _exit(3);
}

int main(void) {
    CUcontext context;
    CUmodule module;
    CUfunction kernel;
    unsigned long long length_ns = 1000;
    void *parameters[] = {&length_ns};
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
    must(cuModuleLoadData(&module, "any image"));
    must(cuModuleGetFunction(&kernel, module, "busy"));
    signal(SIGUSR1, fork_here);
    puts("ready");
    fflush(stdout);
    CUresult result = cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    if (is_child)
        _exit(result == CUDA_ERROR_NOT_INITIALIZED ? CAME_OUT : 8);
    printf("launch %d\n", result);
    return 0;
}
