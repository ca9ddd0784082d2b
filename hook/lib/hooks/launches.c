/* The wrappers of functions that launch kernels. Graph launches are in graphs.c. */
#include "driver/gpus.h"
#include "share/launch.h"

/* Launch functions from before CUDA 4 use the legacy default stream, unless they name another. */
PLIMSOLL_LAUNCHES(cuLaunch, NULL, (CUfunction f), (f))
PLIMSOLL_LAUNCHES(cuLaunchGrid, NULL, (CUfunction f, int grid_width, int grid_height),
                  (f, grid_width, grid_height))
PLIMSOLL_LAUNCHES(cuLaunchGridAsync, hStream,
                  (CUfunction f, int grid_width, int grid_height, CUstream hStream),
                  (f, grid_width, grid_height, hStream))

#define LAUNCHES_KERNEL(symbol, stream)                                                                      \
    PLIMSOLL_LAUNCHES(symbol, stream,                                                                        \
                      (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,    \
                       unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,               \
                       unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra),    \
                      (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes,     \
                       hStream, kernelParams, extra))

LAUNCHES_KERNEL(cuLaunchKernel, hStream)
LAUNCHES_KERNEL(cuLaunchKernel_ptsz, plimsoll_per_thread(hStream))

/* A call without a configuration is for the driver to refuse. */
static CUstream stream_of(const CUlaunchConfig *config) {
    return config ? config->hStream : NULL;
}

#define LAUNCHES_CONFIGURED(symbol, stream)                                                                  \
    PLIMSOLL_LAUNCHES(symbol, stream,                                                                        \
                      (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),       \
                      (config, f, kernelParams, extra))

LAUNCHES_CONFIGURED(cuLaunchKernelEx, stream_of(config))
LAUNCHES_CONFIGURED(cuLaunchKernelEx_ptsz, plimsoll_per_thread(stream_of(config)))

#define LAUNCHES_COOPERATIVE(symbol, stream)                                                                 \
    PLIMSOLL_LAUNCHES(symbol, stream,                                                                        \
                      (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,    \
                       unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,               \
                       unsigned int sharedMemBytes, CUstream hStream, void **kernelParams),                  \
                      (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes,     \
                       hStream, kernelParams))

LAUNCHES_COOPERATIVE(cuLaunchCooperativeKernel, hStream)
LAUNCHES_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, plimsoll_per_thread(hStream))

/* A single gate stands before all GPUs of a container. The first device's stream stands for the others. */
static CUstream first_of(const CUDA_LAUNCH_PARAMS *list, unsigned count) {
    return list && count > 0 ? list[0].hStream : NULL;
}

PLIMSOLL_LAUNCHES(cuLaunchCooperativeKernelMultiDevice, first_of(launchParamsList, numDevices),
                  (CUDA_LAUNCH_PARAMS * launchParamsList, unsigned int numDevices, unsigned int flags),
                  (launchParamsList, numDevices, flags))
