/* An ordinary CUDA program: it allocates, runs a kernel that keeps the GPU busy for a given time, rests,
 * and frees. The program is the load of the demo and the tests. It opens libcuda.so.1 itself and does not
 * depend on the emulator, so it runs unchanged on a real GPU. It prints one JSON line per phase on
 * standard output. The exit code is 0, 1 for bad options, or 2 after a CUDA error. */
#include "tools/busy/options.h"

#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* The kernel works for as many nanoseconds as its parameter says, in time for which it really ran. Between
 * two readings of the timer it counts at most 20 us: after a longer gap the GPU had switched to another
 * process. */
static const char ptx[] = ".version 6.0\n"
                          ".target sm_50\n"
                          ".address_size 64\n"
                          ".visible .entry busy(.param .u64 duration)\n"
                          "{\n"
                          "    .reg .pred %p;\n"
                          "    .reg .b64 %last, %now, %step, %done, %length;\n"
                          "    ld.param.u64 %length, [duration];\n"
                          "    mov.u64 %done, 0;\n"
                          "    mov.u64 %last, %globaltimer;\n"
                          "again:\n"
                          "    mov.u64 %now, %globaltimer;\n"
                          "    sub.u64 %step, %now, %last;\n"
                          "    min.u64 %step, %step, 20000;\n"
                          "    add.u64 %done, %done, %step;\n"
                          "    mov.u64 %last, %now;\n"
                          "    setp.lt.u64 %p, %done, %length;\n"
                          "    @%p bra again;\n"
                          "    ret;\n"
                          "}\n";

enum { GRANULE = 2 << 20 };

/* The driver's functions, under the symbols that this version of cuda.h maps their names to. */
#define FUNCTIONS(X)                                                                                         \
    X(cuInit, "cuInit")                                                                                      \
    X(cuGetErrorName, "cuGetErrorName")                                                                      \
    X(cuDeviceGet, "cuDeviceGet")                                                                            \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")                                                  \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2")                                             \
    X(cuCtxSetCurrent, "cuCtxSetCurrent")                                                                    \
    X(cuCtxSynchronize, "cuCtxSynchronize")                                                                  \
    X(cuModuleLoadData, "cuModuleLoadData")                                                                  \
    X(cuModuleGetFunction, "cuModuleGetFunction")                                                            \
    X(cuLaunchKernel, "cuLaunchKernel")                                                                      \
    X(cuMemAlloc, "cuMemAlloc_v2")                                                                           \
    X(cuMemFree, "cuMemFree_v2")                                                                             \
    X(cuMemAllocPitch, "cuMemAllocPitch_v2")                                                                 \
    X(cuMemAllocManaged, "cuMemAllocManaged")                                                                \
    X(cuMemAllocAsync, "cuMemAllocAsync")                                                                    \
    X(cuMemFreeAsync, "cuMemFreeAsync")                                                                      \
    X(cuMemCreate, "cuMemCreate")                                                                            \
    X(cuMemRelease, "cuMemRelease")                                                                          \
    X(cuMemsetD8, "cuMemsetD8_v2")

static struct {
#define POINTER(name, symbol) __typeof__(&name) name;
    FUNCTIONS(POINTER)
} cuda;

static const char *const path_calls[] = {"cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged",
                                         "cuMemAllocAsync", "cuMemCreate"};

static struct {
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
} chunks[MAX_STEPS];

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void rest_us(uint64_t us) {
    struct timespec left = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    while (us && nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* Reports a failed call; true if the call failed. */
static bool failed(CUresult result, const char *call, uint64_t requested_bytes) {
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return false;
    if (!cuda.cuGetErrorName || cuda.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
        name = "CUDA_ERROR_UNKNOWN";
    printf("{\"phase\": \"failed\", \"call\": \"%s\", \"error\": \"%s\"", call, name);
    if (requested_bytes)
        printf(", \"requested\": %llu", (unsigned long long)requested_bytes);
    printf("}\n");
    return true;
}

static bool load_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    const char *missing = library ? NULL : "libcuda.so.1";
#define LOOK_UP(name, symbol)                                                                                \
    if (library) {                                                                                           \
        *(void **)&cuda.name = dlsym(library, symbol);                                                       \
        if (!cuda.name)                                                                                      \
            missing = symbol;                                                                                \
    }
    FUNCTIONS(LOOK_UP)
    if (missing)
        printf("{\"phase\": \"failed\", \"call\": \"dlopen\", \"error\": \"%s not found\"}\n", missing);
    return !missing;
}

static CUresult allocate_pitch(CUdeviceptr *address, uint64_t bytes) {
    size_t pitch;
    size_t height = bytes >= 1 << 20 ? 1024 : 1;
    return cuda.cuMemAllocPitch(address, &pitch, (bytes + height - 1) / height, height, 4);
}

static CUresult create(CUmemGenericAllocationHandle *handle, uint64_t bytes) {
    CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = options.device}};
    return cuda.cuMemCreate(handle, (bytes + GRANULE - 1) / GRANULE * GRANULE, &props, 0);
}

static CUresult allocate(unsigned step, uint64_t bytes) {
    switch (options.path) {
    case ALLOC:
        return cuda.cuMemAlloc(&chunks[step].address, bytes);
    case PITCH:
        return allocate_pitch(&chunks[step].address, bytes);
    case MANAGED:
        return cuda.cuMemAllocManaged(&chunks[step].address, bytes, CU_MEM_ATTACH_GLOBAL);
    case ASYNC:
        return cuda.cuMemAllocAsync(&chunks[step].address, bytes, NULL);
    case CREATE:
        return create(&chunks[step].handle, bytes);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult release(unsigned step) {
    if (options.path == CREATE)
        return cuda.cuMemRelease(chunks[step].handle);
    return options.path == ASYNC ? cuda.cuMemFreeAsync(chunks[step].address, NULL)
                                 : cuda.cuMemFree(chunks[step].address);
}

static bool release_all(unsigned count) {
    for (unsigned step = 0; step < count; step++)
        if (failed(release(step), "free", 0))
            return false;
    return !failed(cuda.cuCtxSynchronize(), "cuCtxSynchronize", 0);
}

static uint64_t step_bytes(unsigned step) {
    uint64_t share = options.memory_bytes / options.steps;
    return step + 1 == options.steps ? options.memory_bytes - share * step : share;
}

/* Managed memory moves to the GPU when the program first touches it. */
static CUresult touch(unsigned step, uint64_t bytes) {
    if (options.path != MANAGED)
        return CUDA_SUCCESS;
    return cuda.cuMemsetD8(chunks[step].address, 0, bytes);
}

static bool allocate_all(void) {
    for (unsigned step = 0; options.memory_bytes && step < options.steps; step++) {
        uint64_t bytes = step_bytes(step);
        if (step)
            rest_us(options.step_ms * 1000);
        if (failed(allocate(step, bytes), path_calls[options.path], bytes)) {
            release_all(step);
            return false;
        }
        if (failed(touch(step, bytes), "cuMemsetD8_v2", bytes))
            return false;
    }
    printf("{\"phase\": \"allocated\", \"bytes\": %llu}\n", (unsigned long long)options.memory_bytes);
    return true;
}

static bool work(CUfunction kernel) {
    uint64_t end_ms = now_ms() + options.seconds_ms, done = 0, duration_ns = options.kernel_us * 1000;
    void *parameters[] = {&duration_ns};
    while (options.kernel_us && (options.iterations ? done < options.iterations : now_ms() < end_ms)) {
        if (failed(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL), "cuLaunchKernel",
                   0) ||
            failed(cuda.cuCtxSynchronize(), "cuCtxSynchronize", 0))
            return false;
        done++;
        rest_us(options.gap_us);
    }
    rest_us(options.hold_ms * 1000);
    printf("{\"phase\": \"done\", \"iterations\": %llu}\n", (unsigned long long)done);
    return true;
}

static bool one_round(CUfunction kernel) {
    return allocate_all() && work(kernel) && (!options.memory_bytes || release_all(options.steps));
}

static bool run(void) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction kernel;
    if (failed(cuda.cuInit(0), "cuInit", 0) ||
        failed(cuda.cuDeviceGet(&device, options.device), "cuDeviceGet", 0) ||
        failed(cuda.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain", 0) ||
        failed(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent", 0) ||
        failed(cuda.cuModuleLoadData(&module, ptx), "cuModuleLoadData", 0) ||
        failed(cuda.cuModuleGetFunction(&kernel, module, "busy"), "cuModuleGetFunction", 0))
        return false;
    printf("{\"phase\": \"started\", \"pid\": %d}\n", (int)getpid());
    bool good = true;
    for (unsigned round = 0; round < options.repeat && (good || options.keep_going); round++) {
        if (round)
            rest_us(options.rest_ms * 1000);
        good = one_round(kernel) && good;
    }
    return !failed(cuda.cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease_v2", 0) && good;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!options_read(argc, argv))
        return 1;
    return load_driver() && run() ? 0 : 2;
}
