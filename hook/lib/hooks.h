/* The one table of hooked functions.
 *
 * The table gives the exported symbols (for programs that link the driver), the linker's version script, and
 * the answers of `dlsym`, `dlvsym` and both versions of `cuGetProcAddress`. A function that is not in the
 * table passes through untouched. Add a line only for a function whose effect is counted, limited, shown or
 * launched, and write its wrapper.
 *
 * Kinds:  SETUP    brings the library in: initialisation and look-up
 *         CONTEXT  makes or ends contexts, whose own memory counts
 *         LIMITED  requests GPU memory: reserved before the call, refused past the line
 *         COUNTED  moves or gives back counted memory; never refused
 *         SYNC     waits for work or queries it: a burst may end there, and pools shrink
 *         BLOCK    blocks its stream without executing anything: a host function, a wait
 *         CAPTURE  begins or ends a stream capture, which records work instead of executing it
 *         VIEW     shows the program its GPUs, their memory, and the processes on them
 *         LAUNCH   puts work on the GPU: held back by the gate, and metered; a graph may also take memory
 *
 * Host memory (cuMemAllocHost, cuMemHostAlloc, cuMemHostRegister) does not belong here: it lies on no GPU.
 * Memory is followed over export and import (memory/exports.h).
 */
#ifndef PLIMSOLL_HOOKS_H
#define PLIMSOLL_HOOKS_H

#define PLIMSOLL_CUDA_HOOKS(X)                                                                               \
    X(cuInit, SETUP)                                                                                         \
    X(cuGetProcAddress, SETUP)                                                                               \
    X(cuGetProcAddress_v2, SETUP)                                                                            \
    X(cuCtxCreate, CONTEXT)                                                                                  \
    X(cuCtxCreate_v2, CONTEXT)                                                                               \
    X(cuCtxCreate_v3, CONTEXT)                                                                               \
    X(cuCtxCreate_v4, CONTEXT)                                                                               \
    X(cuCtxDestroy, CONTEXT)                                                                                 \
    X(cuCtxDestroy_v2, CONTEXT)                                                                              \
    X(cuCtxAttach, CONTEXT)                                                                                  \
    X(cuCtxDetach, CONTEXT)                                                                                  \
    X(cuGreenCtxCreate, CONTEXT)                                                                             \
    X(cuGreenCtxDestroy, CONTEXT)                                                                            \
    X(cuDevicePrimaryCtxRetain, CONTEXT)                                                                     \
    X(cuDevicePrimaryCtxRelease, CONTEXT)                                                                    \
    X(cuDevicePrimaryCtxRelease_v2, CONTEXT)                                                                 \
    X(cuDevicePrimaryCtxReset, CONTEXT)                                                                      \
    X(cuDevicePrimaryCtxReset_v2, CONTEXT)                                                                   \
    X(cuMemAlloc, LIMITED)                                                                                   \
    X(cuMemAlloc_v2, LIMITED)                                                                                \
    X(cuMemAllocPitch, LIMITED)                                                                              \
    X(cuMemAllocPitch_v2, LIMITED)                                                                           \
    X(cuMemAllocManaged, LIMITED)                                                                            \
    X(cuMemAllocAsync, LIMITED)                                                                              \
    X(cuMemAllocAsync_ptsz, LIMITED)                                                                         \
    X(cuMemAllocFromPoolAsync, LIMITED)                                                                      \
    X(cuMemAllocFromPoolAsync_ptsz, LIMITED)                                                                 \
    X(cuMemCreate, LIMITED)                                                                                  \
    X(cuArrayCreate, LIMITED)                                                                                \
    X(cuArrayCreate_v2, LIMITED)                                                                             \
    X(cuArray3DCreate, LIMITED)                                                                              \
    X(cuArray3DCreate_v2, LIMITED)                                                                           \
    X(cuMipmappedArrayCreate, LIMITED)                                                                       \
    X(cuCtxSetLimit, LIMITED)                                                                                \
    X(cuMemFree, COUNTED)                                                                                    \
    X(cuMemFree_v2, COUNTED)                                                                                 \
    X(cuMemFreeAsync, COUNTED)                                                                               \
    X(cuMemFreeAsync_ptsz, COUNTED)                                                                          \
    X(cuMemPoolCreate, COUNTED)                                                                              \
    X(cuMemPoolDestroy, COUNTED)                                                                             \
    X(cuMemPoolTrimTo, COUNTED)                                                                              \
    X(cuDeviceSetMemPool, COUNTED)                                                                           \
    X(cuMemSetMemPool, COUNTED)                                                                              \
    X(cuDeviceGraphMemTrim, COUNTED)                                                                         \
    X(cuMemMap, LIMITED)                                                                                     \
    X(cuMemUnmap, COUNTED)                                                                                   \
    X(cuMemRetainAllocationHandle, COUNTED)                                                                  \
    X(cuMemExportToShareableHandle, COUNTED)                                                                 \
    X(cuMemImportFromShareableHandle, COUNTED)                                                               \
    X(cuMemMapArrayAsync, COUNTED)                                                                           \
    X(cuMemMapArrayAsync_ptsz, COUNTED)                                                                      \
    X(cuMemRelease, COUNTED)                                                                                 \
    X(cuIpcGetMemHandle, COUNTED)                                                                            \
    X(cuIpcOpenMemHandle, LIMITED)                                                                           \
    X(cuIpcOpenMemHandle_v2, LIMITED)                                                                        \
    X(cuIpcCloseMemHandle, COUNTED)                                                                          \
    X(cuMemPoolExportPointer, COUNTED)                                                                       \
    X(cuMemPoolImportPointer, LIMITED)                                                                       \
    X(cuImportExternalMemory, LIMITED)                                                                       \
    X(cuExternalMemoryGetMappedBuffer, COUNTED)                                                              \
    X(cuExternalMemoryGetMappedMipmappedArray, COUNTED)                                                      \
    X(cuDestroyExternalMemory, COUNTED)                                                                      \
    X(cuArrayDestroy, COUNTED)                                                                               \
    X(cuMipmappedArrayDestroy, COUNTED)                                                                      \
    X(cuGraphAddMemAllocNode, COUNTED)                                                                       \
    X(cuGraphAddNode, COUNTED)                                                                               \
    X(cuGraphAddNode_v2, COUNTED)                                                                            \
    X(cuGraphAddNode_v3, COUNTED)                                                                            \
    X(cuGraphExecDestroy, COUNTED)                                                                           \
    X(cuGraphInstantiate, LIMITED)                                                                           \
    X(cuGraphInstantiate_v2, LIMITED)                                                                        \
    X(cuGraphInstantiateWithFlags, LIMITED)                                                                  \
    X(cuGraphInstantiateWithParams, LIMITED)                                                                 \
    X(cuGraphInstantiateWithParams_ptsz, LIMITED)                                                            \
    X(cuGraphUpload, LIMITED)                                                                                \
    X(cuGraphUpload_ptsz, LIMITED)                                                                           \
    X(cuGraphLaunch, LAUNCH)                                                                                 \
    X(cuGraphLaunch_ptsz, LAUNCH)                                                                            \
    X(cuLaunch, LAUNCH)                                                                                      \
    X(cuLaunchCooperativeKernel, LAUNCH)                                                                     \
    X(cuLaunchCooperativeKernelMultiDevice, LAUNCH)                                                          \
    X(cuLaunchCooperativeKernel_ptsz, LAUNCH)                                                                \
    X(cuLaunchGrid, LAUNCH)                                                                                  \
    X(cuLaunchGridAsync, LAUNCH)                                                                             \
    X(cuLaunchKernel, LAUNCH)                                                                                \
    X(cuLaunchKernelEx, LAUNCH)                                                                              \
    X(cuLaunchKernelEx_ptsz, LAUNCH)                                                                         \
    X(cuLaunchKernel_ptsz, LAUNCH)                                                                           \
    X(cuLaunchHostFunc, BLOCK)                                                                               \
    X(cuLaunchHostFunc_ptsz, BLOCK)                                                                          \
    X(cuLaunchHostFunc_v2, BLOCK)                                                                            \
    X(cuLaunchHostFunc_v2_ptsz, BLOCK)                                                                       \
    X(cuStreamAddCallback, BLOCK)                                                                            \
    X(cuStreamAddCallback_ptsz, BLOCK)                                                                       \
    X(cuStreamBatchMemOp, BLOCK)                                                                             \
    X(cuStreamBatchMemOp_ptsz, BLOCK)                                                                        \
    X(cuStreamBatchMemOp_v2, BLOCK)                                                                          \
    X(cuStreamBatchMemOp_v2_ptsz, BLOCK)                                                                     \
    X(cuStreamWaitEvent, BLOCK)                                                                              \
    X(cuStreamWaitEvent_ptsz, BLOCK)                                                                         \
    X(cuStreamWaitValue32, BLOCK)                                                                            \
    X(cuStreamWaitValue32_ptsz, BLOCK)                                                                       \
    X(cuStreamWaitValue32_v2, BLOCK)                                                                         \
    X(cuStreamWaitValue32_v2_ptsz, BLOCK)                                                                    \
    X(cuStreamWaitValue64, BLOCK)                                                                            \
    X(cuStreamWaitValue64_ptsz, BLOCK)                                                                       \
    X(cuStreamWaitValue64_v2, BLOCK)                                                                         \
    X(cuStreamWaitValue64_v2_ptsz, BLOCK)                                                                    \
    X(cuMemsetD8, LAUNCH)                                                                                    \
    X(cuMemsetD8_v2, LAUNCH)                                                                                 \
    X(cuMemsetD8_v2_ptds, LAUNCH)                                                                            \
    X(cuMemsetD8Async, LAUNCH)                                                                               \
    X(cuMemsetD8Async_ptsz, LAUNCH)                                                                          \
    X(cuMemsetD2D8, LAUNCH)                                                                                  \
    X(cuMemsetD2D8_v2, LAUNCH)                                                                               \
    X(cuMemsetD2D8_v2_ptds, LAUNCH)                                                                          \
    X(cuMemsetD2D8Async, LAUNCH)                                                                             \
    X(cuMemsetD2D8Async_ptsz, LAUNCH)                                                                        \
    X(cuMemsetD16, LAUNCH)                                                                                   \
    X(cuMemsetD16_v2, LAUNCH)                                                                                \
    X(cuMemsetD16_v2_ptds, LAUNCH)                                                                           \
    X(cuMemsetD16Async, LAUNCH)                                                                              \
    X(cuMemsetD16Async_ptsz, LAUNCH)                                                                         \
    X(cuMemsetD2D16, LAUNCH)                                                                                 \
    X(cuMemsetD2D16_v2, LAUNCH)                                                                              \
    X(cuMemsetD2D16_v2_ptds, LAUNCH)                                                                         \
    X(cuMemsetD2D16Async, LAUNCH)                                                                            \
    X(cuMemsetD2D16Async_ptsz, LAUNCH)                                                                       \
    X(cuMemsetD32, LAUNCH)                                                                                   \
    X(cuMemsetD32_v2, LAUNCH)                                                                                \
    X(cuMemsetD32_v2_ptds, LAUNCH)                                                                           \
    X(cuMemsetD32Async, LAUNCH)                                                                              \
    X(cuMemsetD32Async_ptsz, LAUNCH)                                                                         \
    X(cuMemsetD2D32, LAUNCH)                                                                                 \
    X(cuMemsetD2D32_v2, LAUNCH)                                                                              \
    X(cuMemsetD2D32_v2_ptds, LAUNCH)                                                                         \
    X(cuMemsetD2D32Async, LAUNCH)                                                                            \
    X(cuMemsetD2D32Async_ptsz, LAUNCH)                                                                       \
    X(cuMemcpy, LAUNCH)                                                                                      \
    X(cuMemcpy_ptds, LAUNCH)                                                                                 \
    X(cuMemcpyAsync, LAUNCH)                                                                                 \
    X(cuMemcpyAsync_ptsz, LAUNCH)                                                                            \
    X(cuMemcpyWithAttributesAsync, LAUNCH)                                                                   \
    X(cuMemcpyWithAttributesAsync_ptsz, LAUNCH)                                                              \
    X(cuMemcpyDtoD, LAUNCH)                                                                                  \
    X(cuMemcpyDtoD_v2, LAUNCH)                                                                               \
    X(cuMemcpyDtoD_v2_ptds, LAUNCH)                                                                          \
    X(cuMemcpyDtoDAsync, LAUNCH)                                                                             \
    X(cuMemcpyDtoDAsync_v2, LAUNCH)                                                                          \
    X(cuMemcpyDtoDAsync_v2_ptsz, LAUNCH)                                                                     \
    X(cuMemcpyDtoA, LAUNCH)                                                                                  \
    X(cuMemcpyDtoA_v2, LAUNCH)                                                                               \
    X(cuMemcpyDtoA_v2_ptds, LAUNCH)                                                                          \
    X(cuMemcpyAtoD, LAUNCH)                                                                                  \
    X(cuMemcpyAtoD_v2, LAUNCH)                                                                               \
    X(cuMemcpyAtoD_v2_ptds, LAUNCH)                                                                          \
    X(cuMemcpyAtoA, LAUNCH)                                                                                  \
    X(cuMemcpyAtoA_v2, LAUNCH)                                                                               \
    X(cuMemcpyAtoA_v2_ptds, LAUNCH)                                                                          \
    X(cuMemcpyPeer, LAUNCH)                                                                                  \
    X(cuMemcpyPeer_ptds, LAUNCH)                                                                             \
    X(cuMemcpyPeerAsync, LAUNCH)                                                                             \
    X(cuMemcpyPeerAsync_ptsz, LAUNCH)                                                                        \
    X(cuMemcpy2D, LAUNCH)                                                                                    \
    X(cuMemcpy2D_v2, LAUNCH)                                                                                 \
    X(cuMemcpy2D_v2_ptds, LAUNCH)                                                                            \
    X(cuMemcpy2DUnaligned, LAUNCH)                                                                           \
    X(cuMemcpy2DUnaligned_v2, LAUNCH)                                                                        \
    X(cuMemcpy2DUnaligned_v2_ptds, LAUNCH)                                                                   \
    X(cuMemcpy2DAsync, LAUNCH)                                                                               \
    X(cuMemcpy2DAsync_v2, LAUNCH)                                                                            \
    X(cuMemcpy2DAsync_v2_ptsz, LAUNCH)                                                                       \
    X(cuMemcpy3D, LAUNCH)                                                                                    \
    X(cuMemcpy3D_v2, LAUNCH)                                                                                 \
    X(cuMemcpy3D_v2_ptds, LAUNCH)                                                                            \
    X(cuMemcpy3DAsync, LAUNCH)                                                                               \
    X(cuMemcpy3DAsync_v2, LAUNCH)                                                                            \
    X(cuMemcpy3DAsync_v2_ptsz, LAUNCH)                                                                       \
    X(cuMemcpy3DPeer, LAUNCH)                                                                                \
    X(cuMemcpy3DPeer_ptds, LAUNCH)                                                                           \
    X(cuMemcpy3DPeerAsync, LAUNCH)                                                                           \
    X(cuMemcpy3DPeerAsync_ptsz, LAUNCH)                                                                      \
    X(cuMemcpyBatchAsync, LAUNCH)                                                                            \
    X(cuMemcpyBatchAsync_ptsz, LAUNCH)                                                                       \
    X(cuMemcpyBatchAsync_v2, LAUNCH)                                                                         \
    X(cuMemcpyBatchAsync_v2_ptsz, LAUNCH)                                                                    \
    X(cuMemcpy3DBatchAsync, LAUNCH)                                                                          \
    X(cuMemcpy3DBatchAsync_ptsz, LAUNCH)                                                                     \
    X(cuMemcpy3DBatchAsync_v2, LAUNCH)                                                                       \
    X(cuMemcpy3DBatchAsync_v2_ptsz, LAUNCH)                                                                  \
    X(cuMemcpy3DWithAttributesAsync, LAUNCH)                                                                 \
    X(cuMemcpy3DWithAttributesAsync_ptsz, LAUNCH)                                                            \
    X(cuMemBatchDecompressAsync, LAUNCH)                                                                     \
    X(cuMemBatchDecompressAsync_ptsz, LAUNCH)                                                                \
    X(cuFabricCpyBatchAsync, LAUNCH)                                                                         \
    X(cuFabricCpyBatchAsync_ptsz, LAUNCH)                                                                    \
    X(cuMemcpyHtoD, SYNC)                                                                                    \
    X(cuMemcpyHtoD_v2, SYNC)                                                                                 \
    X(cuMemcpyHtoD_v2_ptds, SYNC)                                                                            \
    X(cuMemcpyDtoH, SYNC)                                                                                    \
    X(cuMemcpyDtoH_v2, SYNC)                                                                                 \
    X(cuMemcpyDtoH_v2_ptds, SYNC)                                                                            \
    X(cuMemcpyHtoA, SYNC)                                                                                    \
    X(cuMemcpyHtoA_v2, SYNC)                                                                                 \
    X(cuMemcpyHtoA_v2_ptds, SYNC)                                                                            \
    X(cuMemcpyAtoH, SYNC)                                                                                    \
    X(cuMemcpyAtoH_v2, SYNC)                                                                                 \
    X(cuMemcpyAtoH_v2_ptds, SYNC)                                                                            \
    X(cuStreamQuery, SYNC)                                                                                   \
    X(cuStreamQuery_ptsz, SYNC)                                                                              \
    X(cuEventQuery, SYNC)                                                                                    \
    X(cuStreamSynchronize, SYNC)                                                                             \
    X(cuStreamSynchronize_ptsz, SYNC)                                                                        \
    X(cuEventSynchronize, SYNC)                                                                              \
    X(cuCtxSynchronize, SYNC)                                                                                \
    X(cuCtxSynchronize_v2, SYNC)                                                                             \
    X(cuStreamBeginCapture, CAPTURE)                                                                         \
    X(cuStreamBeginCapture_ptsz, CAPTURE)                                                                    \
    X(cuStreamBeginCapture_v2, CAPTURE)                                                                      \
    X(cuStreamBeginCapture_v2_ptsz, CAPTURE)                                                                 \
    X(cuStreamBeginCaptureToCig, CAPTURE)                                                                    \
    X(cuStreamBeginCaptureToCig_ptsz, CAPTURE)                                                               \
    X(cuStreamBeginCaptureToGraph, CAPTURE)                                                                  \
    X(cuStreamBeginCaptureToGraph_ptsz, CAPTURE)                                                             \
    X(cuStreamBeginRecaptureToGraph, CAPTURE)                                                                \
    X(cuStreamBeginRecaptureToGraph_ptsz, CAPTURE)                                                           \
    X(cuStreamEndCapture, CAPTURE)                                                                           \
    X(cuStreamEndCapture_ptsz, CAPTURE)                                                                      \
    X(cuStreamEndCaptureToCig, CAPTURE)                                                                      \
    X(cuStreamEndCaptureToCig_ptsz, CAPTURE)                                                                 \
    X(cuStreamDestroy, CAPTURE)                                                                              \
    X(cuStreamDestroy_v2, CAPTURE)                                                                           \
    X(cuDeviceTotalMem, VIEW)                                                                                \
    X(cuDeviceTotalMem_v2, VIEW)                                                                             \
    X(cuMemGetInfo, VIEW)                                                                                    \
    X(cuMemGetInfo_v2, VIEW)

#define PLIMSOLL_NVML_HOOKS(X)                                                                               \
    X(nvmlDeviceGetMemoryInfo, VIEW)                                                                         \
    X(nvmlDeviceGetMemoryInfo_v2, VIEW)                                                                      \
    X(nvmlDeviceGetCount, VIEW)                                                                              \
    X(nvmlDeviceGetCount_v2, VIEW)                                                                           \
    X(nvmlDeviceGetHandleByIndex, VIEW)                                                                      \
    X(nvmlDeviceGetHandleByIndex_v2, VIEW)                                                                   \
    X(nvmlDeviceGetHandleByUUID, VIEW)                                                                       \
    X(nvmlDeviceGetHandleByUUIDV, VIEW)                                                                      \
    X(nvmlDeviceGetHandleByPciBusId, VIEW)                                                                   \
    X(nvmlDeviceGetHandleByPciBusId_v2, VIEW)                                                                \
    X(nvmlDeviceGetHandleBySerial, VIEW)                                                                     \
    X(nvmlDeviceGetIndex, VIEW)                                                                              \
    X(nvmlDeviceGetComputeRunningProcesses, VIEW)                                                            \
    X(nvmlDeviceGetComputeRunningProcesses_v2, VIEW)                                                         \
    X(nvmlDeviceGetComputeRunningProcesses_v3, VIEW)                                                         \
    X(nvmlDeviceGetGraphicsRunningProcesses, VIEW)                                                           \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2, VIEW)                                                        \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3, VIEW)                                                        \
    X(nvmlDeviceGetMPSComputeRunningProcesses, VIEW)                                                         \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v2, VIEW)                                                      \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3, VIEW)                                                      \
    X(nvmlDeviceGetRunningProcessDetailList, VIEW)                                                           \
    X(nvmlDeviceGetProcessUtilization, VIEW)                                                                 \
    X(nvmlDeviceGetProcessesUtilizationInfo, VIEW)

/* Functions that the wrappers call, and that programs get unchanged. Older drivers lack some. */
#define PLIMSOLL_CUDA_CALLED(X)                                                                              \
    X(cuCtxFromGreenCtx)                                                                                     \
    X(cuCtxGetCurrent)                                                                                       \
    X(cuCtxGetDevice)                                                                                        \
    X(cuCtxGetId)                                                                                            \
    X(cuCtxGetLimit)                                                                                         \
    X(cuCtxPushCurrent_v2)                                                                                   \
    X(cuCtxPopCurrent_v2)                                                                                    \
    X(cuCtxRecordEvent)                                                                                      \
    X(cuDeviceGetCount)                                                                                      \
    X(cuDeviceGetUuid)                                                                                       \
    X(cuDeviceGetUuid_v2)                                                                                    \
    X(cuDeviceGetDefaultMemPool)                                                                             \
    X(cuDeviceGetMemPool)                                                                                    \
    X(cuDeviceGetGraphMemAttribute)                                                                          \
    X(cuDevicePrimaryCtxGetState)                                                                            \
    X(cuDriverGetVersion)                                                                                    \
    X(cuEventCreate)                                                                                         \
    X(cuEventDestroy_v2)                                                                                     \
    X(cuEventElapsedTime)                                                                                    \
    X(cuEventRecord)                                                                                         \
    X(cuGraphChildGraphNodeGetGraph)                                                                         \
    X(cuGraphGetNodes)                                                                                       \
    X(cuGraphMemAllocNodeGetParams)                                                                          \
    X(cuGraphNodeGetType)                                                                                    \
    X(cuMemAddressFree)                                                                                      \
    X(cuMemAddressReserve)                                                                                   \
    X(cuMemGetAllocationGranularity)                                                                         \
    X(cuMemGetAllocationPropertiesFromHandle)                                                                \
    X(cuMemPoolGetAttribute)                                                                                 \
    X(cuPointerGetAttribute)                                                                                 \
    X(cuStreamGetCtx)                                                                                        \
    X(cuStreamIsCapturing)                                                                                   \
    X(cuThreadExchangeStreamCaptureMode)

#define PLIMSOLL_NVML_CALLED(X) X(nvmlDeviceGetUUID)

/* The loader's own look-ups, exported from assembly (driver/lookup.c). */
#define PLIMSOLL_LOADER_HOOKS(X)                                                                             \
    X(dlsym, SETUP)                                                                                          \
    X(dlvsym, SETUP)

#endif
