/* A short program: takes this many MiB, prints the result, and dies without giving anything back.
 *   brief MIB          at once
 *   brief MIB stay     when its input ends
 *   brief MIB leader   likewise, but its first thread is gone long before: a zombie, while another one lives
 */
#define _GNU_SOURCE
#include <cuda.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *stay(void *unused) {
    char end;
    while (read(STDIN_FILENO, &end, 1) > 0)
        ;
    kill(getpid(), SIGKILL);
    return unused;
}

int main(int argc, char **argv) {
    CUcontext context;
    CUdeviceptr memory;
    size_t size = argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) << 20 : 0;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuDevicePrimaryCtxRetain(&context, 0);
    if (result == CUDA_SUCCESS)
        result = cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS)
        result = cuMemAlloc(&memory, size);
    printf("%d\n", (int)result);
    fflush(stdout);
    if (argc > 2 && argv[2][0] == 'l') {
        pthread_t other;
        pthread_create(&other, NULL, stay, NULL);
        pthread_exit(NULL);
    }
    if (argc > 2)
        stay(NULL);
    kill(getpid(), SIGKILL);
    return 1;
}
