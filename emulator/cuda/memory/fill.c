/* The API's many functions that fill memory with one value. */
#include "cuda/memory/copy/copy.h"
#include "cuda/stream/stream.h"
#include "cuda/stream/submit.h"

static CUresult fill(CUDA_MEMSET_NODE_PARAMS params, CUstream handle, bool wait) {
    struct work work;
    CUstream stream;
    CUresult result = submit_enter(handle, &stream);
    if (result)
        return result;
    result = copy_fill(&params, &work);
    if (result == CUDA_SUCCESS)
        result = wait ? submit_and_finish(stream, &work) : submit(stream, &work);
    return driver_leave(result);
}

static CUDA_MEMSET_NODE_PARAMS line(CUdeviceptr address, unsigned element, unsigned value, size_t count) {
    return (CUDA_MEMSET_NODE_PARAMS){
        .dst = address, .elementSize = element, .value = value, .width = count, .height = 1};
}

static CUDA_MEMSET_NODE_PARAMS rows(CUdeviceptr address, size_t pitch, unsigned element, unsigned value,
                                    size_t width, size_t height) {
    return (CUDA_MEMSET_NODE_PARAMS){.dst = address,
                                     .pitch = pitch,
                                     .elementSize = element,
                                     .value = value,
                                     .width = width,
                                     .height = height};
}

/* Defines the four functions of one element width. */
#define FILLS(bits, type, element)                                                                           \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr address, type value, size_t count) {                           \
        return fill(line(address, element, value, count), NULL, true);                                       \
    }                                                                                                        \
    CUresult cuMemsetD##bits##Async(CUdeviceptr address, type value, size_t count, CUstream stream) {        \
        return fill(line(address, element, value, count), stream, false);                                    \
    }                                                                                                        \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr address, size_t pitch, type value, size_t width,             \
                                    size_t height) {                                                         \
        return fill(rows(address, pitch, element, value, width, height), NULL, true);                        \
    }                                                                                                        \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr address, size_t pitch, type value, size_t width,           \
                                      size_t height, CUstream stream) {                                      \
        return fill(rows(address, pitch, element, value, width, height), stream, false);                     \
    }

FILLS(8, unsigned char, 1)
FILLS(16, unsigned short, 2)
FILLS(32, unsigned int, 4)
