/* The wrappers of what launches kernels. Graphs are launched in graphs.c. */
#include "launching.h"

/* The launches from before CUDA 4 run in the legacy default stream, unless they name another. */
CUresult cuLaunch(CUfunction f) {
    PLIMSOLL_LAUNCH(cuLaunch, NULL, f);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
    PLIMSOLL_LAUNCH(cuLaunchGrid, NULL, f, grid_width, grid_height);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
    PLIMSOLL_LAUNCH(cuLaunchGridAsync, hStream, f, grid_width, grid_height, hStream);
}

#define LAUNCH_KERNEL(symbol, stream)                                                                        \
    PLIMSOLL_LAUNCH(symbol, stream, f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,        \
                    sharedMemBytes, hStream, kernelParams, extra)

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra) {
    LAUNCH_KERNEL(cuLaunchKernel, hStream);
}

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                             unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                             unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                             void **kernelParams, void **extra) {
    LAUNCH_KERNEL(cuLaunchKernel_ptsz, plimsoll_per_thread(hStream));
}

/* A call without a configuration is for the driver to refuse. */
static CUstream stream_of(const CUlaunchConfig *config) {
    return config ? config->hStream : NULL;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
    PLIMSOLL_LAUNCH(cuLaunchKernelEx, stream_of(config), config, f, kernelParams, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                               void **extra) {
    PLIMSOLL_LAUNCH(cuLaunchKernelEx_ptsz, plimsoll_per_thread(stream_of(config)), config, f, kernelParams,
                    extra);
}

#define LAUNCH_COOPERATIVE(symbol, stream)                                                                   \
    PLIMSOLL_LAUNCH(symbol, stream, f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,        \
                    sharedMemBytes, hStream, kernelParams)

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                   unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                   void **kernelParams) {
    LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, hStream);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                        void **kernelParams) {
    LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, plimsoll_per_thread(hStream));
}

/* One gate stands before all GPUs of a container; the first device's stream stands for the others. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList, unsigned int numDevices,
                                              unsigned int flags) {
    CUstream first = launchParamsList && numDevices > 0 ? launchParamsList[0].hStream : NULL;
    PLIMSOLL_LAUNCH(cuLaunchCooperativeKernelMultiDevice, first, launchParamsList, numDevices, flags);
}
