/* Functions that do the same as another function, mostly as another version of themselves. */
#include "cuda/driver.h"
#include "cuda/signature.h"

SAME(cuCtxCreate, cuCtxCreate_v2, CUcontext *, unsigned, CUdevice)
SAME(cuCtxDestroy, cuCtxDestroy_v2, CUcontext)
SAME(cuCtxPopCurrent, cuCtxPopCurrent_v2, CUcontext *)
SAME(cuCtxPushCurrent, cuCtxPushCurrent_v2, CUcontext)
SAME(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, CUdevice)
SAME(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, CUdevice)
SAME(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, CUdevice, unsigned)
SAME(cuEventDestroy, cuEventDestroy_v2, CUevent)
SAME(cuEventElapsedTime_v2, cuEventElapsedTime, float *, CUevent, CUevent)
SAME(cuGraphInstantiate, cuGraphInstantiate_v2, CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t)
SAME(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, CUdeviceptr *, CUipcMemHandle, unsigned)
SAME(cuMemHostRegister, cuMemHostRegister_v2, void *, size_t, unsigned)
SAME(cuModuleLoadFatBinary, cuModuleLoadData, CUmodule *, const void *)
SAME(cuStreamBatchMemOp, cuStreamBatchMemOp_v2, CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned)
SAME(cuStreamDestroy, cuStreamDestroy_v2, CUstream)
