/* The wrappers of copies of rectangles and boxes, whose ends are described by a structure.
 *
 * A call without a structure is for the driver to refuse.
 */
#include "driver/gpus.h"
#include "hooks/copies.h"

/* The structures of all ages and dimensions have these four members in common. */
#define STAYS_ON_DEVICE(box)                                                                                 \
    ((box) && plimsoll_end_is_on_device((box)->dstMemoryType, (box)->dstDevice) &&                           \
     plimsoll_end_is_on_device((box)->srcMemoryType, (box)->srcDevice))

#define BOX(symbol, stream, type)                                                                            \
    PLIMSOLL_COPIES(symbol, STAYS_ON_DEVICE(pCopy), stream, (const type *pCopy), (pCopy))

BOX(cuMemcpy2D, NULL, CUDA_MEMCPY2D_v1)
BOX(cuMemcpy2D_v2, NULL, CUDA_MEMCPY2D)
BOX(cuMemcpy2D_v2_ptds, CU_STREAM_PER_THREAD, CUDA_MEMCPY2D)
BOX(cuMemcpy2DUnaligned, NULL, CUDA_MEMCPY2D_v1)
BOX(cuMemcpy2DUnaligned_v2, NULL, CUDA_MEMCPY2D)
BOX(cuMemcpy2DUnaligned_v2_ptds, CU_STREAM_PER_THREAD, CUDA_MEMCPY2D)
BOX(cuMemcpy3D, NULL, CUDA_MEMCPY3D_v1)
BOX(cuMemcpy3D_v2, NULL, CUDA_MEMCPY3D)
BOX(cuMemcpy3D_v2_ptds, CU_STREAM_PER_THREAD, CUDA_MEMCPY3D)
BOX(cuMemcpy3DPeer, NULL, CUDA_MEMCPY3D_PEER)
BOX(cuMemcpy3DPeer_ptds, CU_STREAM_PER_THREAD, CUDA_MEMCPY3D_PEER)

#define BOX_ASYNC(symbol, stream, type)                                                                      \
    PLIMSOLL_COPIES_ASYNC(symbol, STAYS_ON_DEVICE(pCopy), stream, (const type *pCopy, CUstream hStream),     \
                          (pCopy, hStream))

BOX_ASYNC(cuMemcpy2DAsync, hStream, CUDA_MEMCPY2D_v1)
BOX_ASYNC(cuMemcpy2DAsync_v2, hStream, CUDA_MEMCPY2D)
BOX_ASYNC(cuMemcpy2DAsync_v2_ptsz, plimsoll_per_thread(hStream), CUDA_MEMCPY2D)
BOX_ASYNC(cuMemcpy3DAsync, hStream, CUDA_MEMCPY3D_v1)
BOX_ASYNC(cuMemcpy3DAsync_v2, hStream, CUDA_MEMCPY3D)
BOX_ASYNC(cuMemcpy3DAsync_v2_ptsz, plimsoll_per_thread(hStream), CUDA_MEMCPY3D)
BOX_ASYNC(cuMemcpy3DPeerAsync, hStream, CUDA_MEMCPY3D_PEER)
BOX_ASYNC(cuMemcpy3DPeerAsync_ptsz, plimsoll_per_thread(hStream), CUDA_MEMCPY3D_PEER)
