/* Variants of functions for programs built with per-thread default streams. During the call, stream 0
 * means the calling thread's own stream. The table has a row per function, in the order of the names. */
#include "cuda/signature.h"
#include "cuda/stream/lookup.h"

#define PER_THREAD(name, suffix, ...)                                                                        \
    CUresult name##suffix(PARAMETERS(__VA_ARGS__)) {                                                         \
        CUstream before = stream_set_default(CU_STREAM_PER_THREAD);                                          \
        CUresult result = name(ARGUMENTS(__VA_ARGS__));                                                      \
        stream_set_default(before);                                                                          \
        return result;                                                                                       \
    }

PER_THREAD(cuEventRecord, _ptsz, CUevent, CUstream)
PER_THREAD(cuEventRecordWithFlags, _ptsz, CUevent, CUstream, unsigned)
PER_THREAD(cuGraphInstantiateWithParams, _ptsz, CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *)
PER_THREAD(cuGraphLaunch, _ptsz, CUgraphExec, CUstream)
PER_THREAD(cuGraphUpload, _ptsz, CUgraphExec, CUstream)
PER_THREAD(cuLaunchCooperativeKernel, _ptsz, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
           unsigned, unsigned, CUstream, void **)
PER_THREAD(cuLaunchHostFunc, _ptsz, CUstream, CUhostFn, void *)
PER_THREAD(cuLaunchKernel, _ptsz, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
           unsigned, CUstream, void **, void **)
PER_THREAD(cuLaunchKernelEx, _ptsz, const CUlaunchConfig *, CUfunction, void **, void **)
PER_THREAD(cuMemAllocAsync, _ptsz, CUdeviceptr *, size_t, CUstream)
PER_THREAD(cuMemAllocFromPoolAsync, _ptsz, CUdeviceptr *, size_t, CUmemoryPool, CUstream)
PER_THREAD(cuMemFreeAsync, _ptsz, CUdeviceptr, CUstream)
PER_THREAD(cuMemMapArrayAsync, _ptsz, CUarrayMapInfo *, unsigned, CUstream)
PER_THREAD(cuMemcpy, _ptds, CUdeviceptr, CUdeviceptr, size_t)
PER_THREAD(cuMemcpy2DAsync_v2, _ptsz, const CUDA_MEMCPY2D *, CUstream)
PER_THREAD(cuMemcpy2DUnaligned_v2, _ptds, const CUDA_MEMCPY2D *)
PER_THREAD(cuMemcpy2D_v2, _ptds, const CUDA_MEMCPY2D *)
PER_THREAD(cuMemcpy3DAsync_v2, _ptsz, const CUDA_MEMCPY3D *, CUstream)
PER_THREAD(cuMemcpy3DBatchAsync, _ptsz, size_t, CUDA_MEMCPY3D_BATCH_OP *, size_t *, unsigned long long,
           CUstream)
PER_THREAD(cuMemcpy3DPeer, _ptds, const CUDA_MEMCPY3D_PEER *)
PER_THREAD(cuMemcpy3DPeerAsync, _ptsz, const CUDA_MEMCPY3D_PEER *, CUstream)
PER_THREAD(cuMemcpy3D_v2, _ptds, const CUDA_MEMCPY3D *)
PER_THREAD(cuMemcpyAsync, _ptsz, CUdeviceptr, CUdeviceptr, size_t, CUstream)
PER_THREAD(cuMemcpyAtoA_v2, _ptds, CUarray, size_t, CUarray, size_t, size_t)
PER_THREAD(cuMemcpyAtoD_v2, _ptds, CUdeviceptr, CUarray, size_t, size_t)
PER_THREAD(cuMemcpyAtoHAsync_v2, _ptsz, void *, CUarray, size_t, size_t, CUstream)
PER_THREAD(cuMemcpyAtoH_v2, _ptds, void *, CUarray, size_t, size_t)
PER_THREAD(cuMemcpyBatchAsync, _ptsz, CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *,
           size_t *, size_t, size_t *, CUstream)
PER_THREAD(cuMemcpyDtoA_v2, _ptds, CUarray, size_t, CUdeviceptr, size_t)
PER_THREAD(cuMemcpyDtoDAsync_v2, _ptsz, CUdeviceptr, CUdeviceptr, size_t, CUstream)
PER_THREAD(cuMemcpyDtoD_v2, _ptds, CUdeviceptr, CUdeviceptr, size_t)
PER_THREAD(cuMemcpyDtoHAsync_v2, _ptsz, void *, CUdeviceptr, size_t, CUstream)
PER_THREAD(cuMemcpyDtoH_v2, _ptds, void *, CUdeviceptr, size_t)
PER_THREAD(cuMemcpyHtoAAsync_v2, _ptsz, CUarray, size_t, const void *, size_t, CUstream)
PER_THREAD(cuMemcpyHtoA_v2, _ptds, CUarray, size_t, const void *, size_t)
PER_THREAD(cuMemcpyHtoDAsync_v2, _ptsz, CUdeviceptr, const void *, size_t, CUstream)
PER_THREAD(cuMemcpyHtoD_v2, _ptds, CUdeviceptr, const void *, size_t)
PER_THREAD(cuMemcpyPeer, _ptds, CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t)
PER_THREAD(cuMemcpyPeerAsync, _ptsz, CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream)
PER_THREAD(cuMemsetD16Async, _ptsz, CUdeviceptr, unsigned short, size_t, CUstream)
PER_THREAD(cuMemsetD16_v2, _ptds, CUdeviceptr, unsigned short, size_t)
PER_THREAD(cuMemsetD2D16Async, _ptsz, CUdeviceptr, size_t, unsigned short, size_t, size_t, CUstream)
PER_THREAD(cuMemsetD2D16_v2, _ptds, CUdeviceptr, size_t, unsigned short, size_t, size_t)
PER_THREAD(cuMemsetD2D32Async, _ptsz, CUdeviceptr, size_t, unsigned, size_t, size_t, CUstream)
PER_THREAD(cuMemsetD2D32_v2, _ptds, CUdeviceptr, size_t, unsigned, size_t, size_t)
PER_THREAD(cuMemsetD2D8Async, _ptsz, CUdeviceptr, size_t, unsigned char, size_t, size_t, CUstream)
PER_THREAD(cuMemsetD2D8_v2, _ptds, CUdeviceptr, size_t, unsigned char, size_t, size_t)
PER_THREAD(cuMemsetD32Async, _ptsz, CUdeviceptr, unsigned, size_t, CUstream)
PER_THREAD(cuMemsetD32_v2, _ptds, CUdeviceptr, unsigned, size_t)
PER_THREAD(cuMemsetD8Async, _ptsz, CUdeviceptr, unsigned char, size_t, CUstream)
PER_THREAD(cuMemsetD8_v2, _ptds, CUdeviceptr, unsigned char, size_t)
PER_THREAD(cuStreamAddCallback, _ptsz, CUstream, CUstreamCallback, void *, unsigned)
PER_THREAD(cuStreamBatchMemOp, _ptsz, CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned)
PER_THREAD(cuStreamBatchMemOp_v2, _ptsz, CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned)
PER_THREAD(cuStreamBeginCaptureToGraph, _ptsz, CUstream, CUgraph, const CUgraphNode *,
           const CUgraphEdgeData *, size_t, CUstreamCaptureMode)
PER_THREAD(cuStreamBeginCapture_v2, _ptsz, CUstream, CUstreamCaptureMode)
PER_THREAD(cuStreamEndCapture, _ptsz, CUstream, CUgraph *)
PER_THREAD(cuStreamGetCaptureInfo_v2, _ptsz, CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *,
           const CUgraphNode **, size_t *)
PER_THREAD(cuStreamGetCaptureInfo_v3, _ptsz, CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *,
           const CUgraphNode **, const CUgraphEdgeData **, size_t *)
PER_THREAD(cuStreamGetCtx, _ptsz, CUstream, CUcontext *)
PER_THREAD(cuStreamGetCtx_v2, _ptsz, CUstream, CUcontext *, CUgreenCtx *)
PER_THREAD(cuStreamGetDevice, _ptsz, CUstream, CUdevice *)
PER_THREAD(cuStreamGetFlags, _ptsz, CUstream, unsigned *)
PER_THREAD(cuStreamGetId, _ptsz, CUstream, unsigned long long *)
PER_THREAD(cuStreamGetPriority, _ptsz, CUstream, int *)
PER_THREAD(cuStreamIsCapturing, _ptsz, CUstream, CUstreamCaptureStatus *)
PER_THREAD(cuStreamQuery, _ptsz, CUstream)
PER_THREAD(cuStreamSynchronize, _ptsz, CUstream)
PER_THREAD(cuStreamWaitEvent, _ptsz, CUstream, CUevent, unsigned)
PER_THREAD(cuStreamWaitValue32, _ptsz, CUstream, CUdeviceptr, cuuint32_t, unsigned)
PER_THREAD(cuStreamWaitValue32_v2, _ptsz, CUstream, CUdeviceptr, cuuint32_t, unsigned)
PER_THREAD(cuStreamWaitValue64, _ptsz, CUstream, CUdeviceptr, cuuint64_t, unsigned)
PER_THREAD(cuStreamWaitValue64_v2, _ptsz, CUstream, CUdeviceptr, cuuint64_t, unsigned)
PER_THREAD(cuStreamWriteValue32, _ptsz, CUstream, CUdeviceptr, cuuint32_t, unsigned)
PER_THREAD(cuStreamWriteValue32_v2, _ptsz, CUstream, CUdeviceptr, cuuint32_t, unsigned)
PER_THREAD(cuStreamWriteValue64, _ptsz, CUstream, CUdeviceptr, cuuint64_t, unsigned)
PER_THREAD(cuStreamWriteValue64_v2, _ptsz, CUstream, CUdeviceptr, cuuint64_t, unsigned)
PER_THREAD(cuStreamBeginCapture, _ptsz, CUstream)
PER_THREAD(cuStreamGetCaptureInfo, _ptsz, CUstream, CUstreamCaptureStatus *, cuuint64_t *)
