/* The driver's and NVML's own declarations, every variant under its real exported name.
 *
 * A wrapper bears the name of the function that it replaces, so the compiler itself checks each signature
 * against NVIDIA's header. `__CUDA_API_VERSION_INTERNAL` is the header's own switch for that: it drops the
 * renaming macros (`cuMemAlloc` -> `cuMemAlloc_v2`) and declares legacy, `_v2` and `_ptsz` alike.
 */
#ifndef PLIMSOLL_CUDA_API_H
#define PLIMSOLL_CUDA_API_H

#define __CUDA_API_VERSION_INTERNAL
#define NVML_NO_UNVERSIONED_FUNC_DEFS /* the same for NVML */
#include <cuda.h>
#include <nvml.h>

/* Declarations of CUDA 13, for the headers of CUDA 12. */
#if CUDA_VERSION < 13000
typedef struct CUDA_FABRIC_COPY_BATCH_OP_st CUDA_FABRIC_COPY_BATCH_OP;
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
typedef void (*CUgraphRecaptureCallback)(
    void); /* really of another type, but this library only passes it on */
CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext ctx);
CUresult CUDAAPI cuFabricCpyBatchAsync(size_t numOps, CUDA_FABRIC_COPY_BATCH_OP *opList,
                                       unsigned long long flags, CUstream hStream);
CUresult CUDAAPI cuFabricCpyBatchAsync_ptsz(size_t numOps, CUDA_FABRIC_COPY_BATCH_OP *opList,
                                            unsigned long long flags, CUstream hStream);
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
                                         unsigned long long flags, CUstream hStream);
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2_ptsz(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
                                              unsigned long long flags, CUstream hStream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                                               CUstream hStream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                                                    CUstream hStream);
CUresult CUDAAPI cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                       CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                                       CUstream hStream);
CUresult CUDAAPI cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                            CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                                            CUstream hStream);
CUresult CUDAAPI cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                             CUmemcpyAttributes *attr, CUstream hStream);
CUresult CUDAAPI cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                                  CUmemcpyAttributes *attr, CUstream hStream);
CUresult CUDAAPI cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void *userData, unsigned int syncMode);
CUresult CUDAAPI cuLaunchHostFunc_v2_ptsz(CUstream hStream, CUhostFn fn, void *userData,
                                          unsigned int syncMode);
CUresult CUDAAPI cuGraphAddNode_v3(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                   CUgraphNodeParams *nodeParams);
CUresult CUDAAPI cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool);
CUresult CUDAAPI cuStreamBeginCaptureToCig(CUstream hStream,
                                           CUstreamCigCaptureParams *streamCigCaptureParams);
CUresult CUDAAPI cuStreamBeginCaptureToCig_ptsz(CUstream hStream,
                                                CUstreamCigCaptureParams *streamCigCaptureParams);
CUresult CUDAAPI cuStreamBeginRecaptureToGraph(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
                                               CUgraphRecaptureCallback callbackFunc, void *userData);
CUresult CUDAAPI cuStreamBeginRecaptureToGraph_ptsz(CUstream hStream, CUstreamCaptureMode mode,
                                                    CUgraph hGraph, CUgraphRecaptureCallback callbackFunc,
                                                    void *userData);
CUresult CUDAAPI cuStreamEndCaptureToCig(CUstream hStream);
CUresult CUDAAPI cuStreamEndCaptureToCig_ptsz(CUstream hStream);
#endif

#endif
