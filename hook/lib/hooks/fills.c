/* The wrappers of functions that fill memory. The driver uses kernels of its own for that, so these are
 * launches.
 *
 * Functions without a stream run in the default one. Whether they return before the memory is filled is the
 * driver's choice, so a burst may end there and need not.
 */
#include "driver/gpus.h"
#include "share/launch.h"

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
