#include "cuda/stream/launch.h"

#include "cuda/context/context.h"
#include "cuda/module/module.h"
#include "cuda/stream/spin.h"
#include "cuda/stream/stream.h"
#include "cuda/stream/submit.h"

enum { THREADS_PER_BLOCK = 1024, GRID_YZ = 65535 };

static bool valid_shape(const CUDA_KERNEL_NODE_PARAMS *p) {
    if (!p->gridDimX || !p->gridDimY || !p->gridDimZ || !p->blockDimX || !p->blockDimY || !p->blockDimZ)
        return false;
    if (p->gridDimX > 0x7fffffff || p->gridDimY > GRID_YZ || p->gridDimZ > GRID_YZ)
        return false;
    if (p->blockDimX > THREADS_PER_BLOCK || p->blockDimY > THREADS_PER_BLOCK || p->blockDimZ > 64)
        return false;
    return (uint64_t)p->blockDimX * p->blockDimY * p->blockDimZ <= THREADS_PER_BLOCK;
}

CUresult launch_work(CUcontext context, const CUDA_KERNEL_NODE_PARAMS *params, struct work *work) {
    CUfunction handle = params->func ? params->func : (CUfunction)(void *)params->kern;
    CUfunction function = module_function(context, handle);
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!valid_shape(params) || (params->kernelParams && params->extra) ||
        params->sharedMemBytes >
            (unsigned)function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES])
        return CUDA_ERROR_INVALID_VALUE;
    if (!module_require(function->module))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *work = (struct work){.kind = WORK_DEVICE, .launches = 1, .type = CU_GRAPH_NODE_TYPE_KERNEL};
    CUresult result = module_parameters(function, params->kernelParams, params->extra, work->parameters,
                                        &work->parameter_count);
    work->length_ns = work->parameter_count ? work->parameters[0] : MODULE_KERNEL_NS;
    return result == CUDA_SUCCESS && module_is_spin(function) ? spin_prepare(work) : result;
}

static CUresult launch_now(CUstream handle, const CUDA_KERNEL_NODE_PARAMS *params) {
    struct work work;
    CUstream stream;
    CUresult result = submit_enter(handle, &stream);
    if (result)
        return result;
    result = launch_work(stream->context, params, &work);
    return driver_leave(result == CUDA_SUCCESS ? submit(stream, &work) : result);
}

static CUresult launch(CUstream stream, const CUDA_KERNEL_NODE_PARAMS *params) {
    uint64_t began_ns = driver_prepare(driver.book.node.launch_ns);
    return driver_last(began_ns, driver.book.node.launch_ns, launch_now(stream, params));
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z,
                        unsigned int shared_bytes, CUstream stream, void **parameters, void **extra) {
    CUDA_KERNEL_NODE_PARAMS params = {.func = function,
                                      .gridDimX = grid_x,
                                      .gridDimY = grid_y,
                                      .gridDimZ = grid_z,
                                      .blockDimX = block_x,
                                      .blockDimY = block_y,
                                      .blockDimZ = block_z,
                                      .sharedMemBytes = shared_bytes,
                                      .kernelParams = parameters,
                                      .extra = extra};
    return launch(stream, &params);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra) {
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                          config->blockDimY, config->blockDimZ, config->sharedMemBytes, config->hStream,
                          parameters, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **parameters) {
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                          parameters, NULL);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count,
                                              unsigned int flags) {
    if (!list || !count || (flags & ~3u))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        CUDA_LAUNCH_PARAMS *one = &list[i];
        CUresult result = cuLaunchCooperativeKernel(
            one->function, one->gridDimX, one->gridDimY, one->gridDimZ, one->blockDimX, one->blockDimY,
            one->blockDimZ, one->sharedMemBytes, one->hStream, one->kernelParams);
        if (result)
            return result;
    }
    return CUDA_SUCCESS;
}
