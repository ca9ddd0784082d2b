/* Converts parameters of kernels and fills from the forms of newer calls. */
#include "cuda/graph/graph.h"

CUDA_KERNEL_NODE_PARAMS graph_kernel_of_v3(const CUDA_KERNEL_NODE_PARAMS_v3 *from) {
    return (CUDA_KERNEL_NODE_PARAMS){.func = from->func,
                                     .gridDimX = from->gridDimX,
                                     .gridDimY = from->gridDimY,
                                     .gridDimZ = from->gridDimZ,
                                     .blockDimX = from->blockDimX,
                                     .blockDimY = from->blockDimY,
                                     .blockDimZ = from->blockDimZ,
                                     .sharedMemBytes = from->sharedMemBytes,
                                     .kernelParams = from->kernelParams,
                                     .extra = from->extra,
                                     .kern = from->kern,
                                     .ctx = from->ctx};
}

CUDA_MEMSET_NODE_PARAMS graph_fill_of_v2(const CUDA_MEMSET_NODE_PARAMS_v2 *from) {
    return (CUDA_MEMSET_NODE_PARAMS){.dst = from->dst,
                                     .pitch = from->pitch,
                                     .value = from->value,
                                     .elementSize = from->elementSize,
                                     .width = from->width,
                                     .height = from->height};
}
