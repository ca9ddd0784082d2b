/* An ordinary program that links the driver: allocates, queries, and prints the answers. */
#include <cuda.h>

#include <stdio.h>

int main(void) {
    CUcontext context;
    CUdeviceptr small = 0, large = 0;
    size_t free_bytes = 0, total_bytes = 0;
    CUresult init = cuInit(0);
    CUresult retain = cuDevicePrimaryCtxRetain(&context, 0);
    CUresult current = cuCtxSetCurrent(context);
    CUresult within = cuMemAlloc(&small, (size_t)64 << 20);
    CUresult beyond = cuMemAlloc(&large, (size_t)1 << 30);
    CUresult info = cuMemGetInfo(&free_bytes, &total_bytes);
    printf("%d %d %d %d %d %d %zu %zu\n", init, retain, current, within, beyond, info, free_bytes,
           total_bytes);
    return 0;
}
