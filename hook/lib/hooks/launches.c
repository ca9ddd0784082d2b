/* The wrappers of functions that launch kernels, or fill memory. Graph launches are in graphs.c. */
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

/* --- fills -----------------------------------------------------------------------------------------------
 *
 * The driver uses kernels of its own for that, so these are
 * launches.
 *
 * Functions without a stream run in the default one. Whether they return before the memory is filled is the
 * driver's choice, so a burst may end there and need not.
 */

#define IN_LINE(symbol, stream, type)                                                                        \
    PLIMSOLL_LAUNCHES_AND_SYNCS(symbol, stream, (CUdeviceptr dstDevice, type value, size_t N),               \
                                (dstDevice, value, N))

#define IN_LINE_ASYNC(symbol, stream, type)                                                                  \
    PLIMSOLL_LAUNCHES(symbol, stream, (CUdeviceptr dstDevice, type value, size_t N, CUstream hStream),       \
                      (dstDevice, value, N, hStream))

#define IN_ROWS(symbol, stream, type)                                                                        \
    PLIMSOLL_LAUNCHES_AND_SYNCS(                                                                             \
        symbol, stream, (CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height),   \
        (dstDevice, dstPitch, value, Width, Height))

#define IN_ROWS_ASYNC(symbol, stream, type)                                                                  \
    PLIMSOLL_LAUNCHES(                                                                                       \
        symbol, stream,                                                                                      \
        (CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height, CUstream hStream), \
        (dstDevice, dstPitch, value, Width, Height, hStream))

/* The functions for one width of element. The first two are from before CUDA 3.2, with sizes of 32 bits. */
#define FILLS(bits, type)                                                                                    \
    PLIMSOLL_LAUNCHES_AND_SYNCS(cuMemsetD##bits, NULL, (CUdeviceptr_v1 dstDevice, type value, unsigned N),   \
                                (dstDevice, value, N))                                                       \
    PLIMSOLL_LAUNCHES_AND_SYNCS(                                                                             \
        cuMemsetD2D##bits, NULL,                                                                             \
        (CUdeviceptr_v1 dstDevice, unsigned dstPitch, type value, unsigned Width, unsigned Height),          \
        (dstDevice, dstPitch, value, Width, Height))                                                         \
    IN_LINE(cuMemsetD##bits##_v2, NULL, type)                                                                \
    IN_LINE(cuMemsetD##bits##_v2_ptds, CU_STREAM_PER_THREAD, type)                                           \
    IN_LINE_ASYNC(cuMemsetD##bits##Async, hStream, type)                                                     \
    IN_LINE_ASYNC(cuMemsetD##bits##Async_ptsz, plimsoll_per_thread(hStream), type)                           \
    IN_ROWS(cuMemsetD2D##bits##_v2, NULL, type)                                                              \
    IN_ROWS(cuMemsetD2D##bits##_v2_ptds, CU_STREAM_PER_THREAD, type)                                         \
    IN_ROWS_ASYNC(cuMemsetD2D##bits##Async, hStream, type)                                                   \
    IN_ROWS_ASYNC(cuMemsetD2D##bits##Async_ptsz, plimsoll_per_thread(hStream), type)

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)
