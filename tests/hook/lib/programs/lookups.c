/* Asks the driver for its functions as NVIDIA's runtime does, static or shared: dlopen, dlsym of
 * cuGetProcAddress, then every name by that, for versions and default streams. The table is made from
 * cudaTypedefs.h by the test.
 *   lookups all SYMBOL     each answer, one per line, from cuGetProcAddress or cuGetProcAddress_v2
 *   lookups odd            what is answered to senseless questions
 *   lookups allocate MIB   through each pointer that allocates: this much, and 1 MiB, freed again */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNASKED "-" /* version 1 of the look-up gives no status */
#define MIB ((size_t)1 << 20)

struct question {
    const char *name;
    int version;
};

static const struct question questions[] = {
#define QUESTION(name, version) {#name, version},
#include "questions.h"
};

static void *driver;
static PFN_cuGetProcAddress_v11030 ask_v1;
static PFN_cuGetProcAddress_v12000 ask_v2;

static void *symbol(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) {
        fprintf(stderr, "lookups: %s\n", dlerror());
        exit(3);
    }
    return found;
}

static void show(const char *name, int version, cuuint64_t flags, CUresult result, const char *status,
                 void *function) {
    Dl_info home = {0};
    bool known = function && dladdr(function, &home) && home.dli_sname;
    const char *file = known ? strrchr(home.dli_fname, '/') + 1 : "none";
    printf("%s %d %d %d %s %s %s\n", *name ? name : "''", version, (int)flags, (int)result, status, file,
           known ? home.dli_sname : "none");
}

static void ask(const char *name, int version, cuuint64_t flags) {
    void *function = NULL;
    char status[16] = UNASKED;
    CUresult result;
    if (ask_v2) {
        CUdriverProcAddressQueryResult found = (CUdriverProcAddressQueryResult)99;
        result = ask_v2(name, &function, version, flags, &found);
        snprintf(status, sizeof status, "%d", (int)found);
    } else
        result = ask_v1(name, &function, version, flags);
    show(name, version, flags, result, status, function);
}

/* For each version that a name has: itself, the one before, and what a runtime of 11.8, 12.8 and 13.0 asks.
 */
static void ask_all(void) {
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        const int version = questions[i].version;
        const int versions[] = {version, version - 1, 11080, 12080, 13000};
        for (size_t each = 0; each < sizeof versions / sizeof versions[0]; each++)
            for (cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT;
                 flags <= CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM; flags++)
                ask(questions[i].name, versions[each], flags);
    }
}

static void ask_oddly(void) {
    static const struct question odd[] = {
        {"", 12080},          {"cuMemAlloc", 0},        {"cuMemAlloc", -1},
        {"cuNoSuch", 12080},  {"cuMemAlloc_v2", 12080}, {"cuMemAlloc", 1999},
        {"cuInit", 99999999}, {"cumemalloc", 12080},    {"cuMemAllocAsync", 11010}};
    void *function = &function;
    CUdriverProcAddressQueryResult status;
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        for (cuuint64_t flags = 0; flags < 5; flags++)
            ask(odd[i].name, odd[i].version, flags);
    printf("nothing %d\n", ask_v2(NULL, &function, 12080, 0, &status));
    printf("nowhere %d\n", ask_v2("cuMemAlloc", NULL, 12080, 0, &status));
    printf("unasked %d\n", ask_v2("cuMemAlloc", &function, 12080, 0, NULL));
    printf("unfound %d\n", ask_v2("cuNoSuch", &function, 12080, 0, NULL));
    printf("old %d %d\n", ask_v1(NULL, &function, 12080, 0), ask_v1("cuNoSuch", &function, 12080, 0));
    const CUuuid id = {{0}};
    const void *table = &table;
    CUresult result = ((PFN_cuGetExportTable_v3000)(uintptr_t)symbol("cuGetExportTable"))(&table, &id);
    printf("table %d %d\n", (int)result, table != NULL);
}

static CUdevice device;
static CUmemoryPool pool;

/* One pointer, called by the type that NVIDIA's header gives its version. */
#define IS(function, number) (strcmp(name, #function) == 0 && version == (number))
#define AS(type) ((type)(uintptr_t)function)

static CUresult call(const char *name, int version, void *function, size_t bytes, CUdeviceptr *made) {
    CUDA_ARRAY3D_DESCRIPTOR solid = {
        .Width = 1024, .Height = bytes / 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY_DESCRIPTOR flat = {solid.Width, solid.Height, solid.Format, 1};
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    size_t pitch;
    if (IS(cuMemAlloc, 3020))
        return AS(PFN_cuMemAlloc_v3020)(made, bytes);
    if (IS(cuMemAllocPitch, 3020))
        return AS(PFN_cuMemAllocPitch_v3020)(made, &pitch, 4096, bytes / 4096, 4);
    if (IS(cuMemAllocManaged, 6000))
        return AS(PFN_cuMemAllocManaged_v6000)(made, bytes, CU_MEM_ATTACH_GLOBAL);
    if (IS(cuMemAllocAsync, 11020))
        return AS(PFN_cuMemAllocAsync_v11020)(made, bytes, NULL);
    if (IS(cuMemAllocFromPoolAsync, 11020))
        return AS(PFN_cuMemAllocFromPoolAsync_v11020)(made, bytes, pool, NULL);
    if (IS(cuMemCreate, 10020))
        return AS(PFN_cuMemCreate_v10020)(made, bytes > 2 * MIB ? bytes : 2 * MIB, &prop, 0);
    if (IS(cuArrayCreate, 3020))
        return AS(PFN_cuArrayCreate_v3020)((CUarray *)made, &flat);
    if (IS(cuArray3DCreate, 3020))
        return AS(PFN_cuArray3DCreate_v3020)((CUarray *)made, &solid);
    if (IS(cuMipmappedArrayCreate, 5000))
        return AS(PFN_cuMipmappedArrayCreate_v5000)((CUmipmappedArray *)made, &solid, 1);
    return CUDA_ERROR_NOT_SUPPORTED;
}

static void give_back(const char *name, CUdeviceptr made) {
    if (strcmp(name, "cuMemCreate") == 0)
        ((PFN_cuMemRelease_v10020)(uintptr_t)symbol("cuMemRelease"))(made);
    else if (strncmp(name, "cuArray", 7) == 0)
        ((PFN_cuArrayDestroy_v2000)(uintptr_t)symbol("cuArrayDestroy"))((CUarray)(uintptr_t)made);
    else if (strncmp(name, "cuMip", 5) == 0)
        ((PFN_cuMipmappedArrayDestroy_v5000)(uintptr_t)symbol("cuMipmappedArrayDestroy"))(
            (CUmipmappedArray)(uintptr_t)made);
    else
        ((PFN_cuMemFree_v3020)(uintptr_t)symbol("cuMemFree_v2"))(made);
    ((PFN_cuCtxSynchronize_v2000)(uintptr_t)symbol("cuCtxSynchronize"))();
}

static int try_size(const struct question *question, void *function, size_t bytes) {
    CUdeviceptr made = 0;
    CUresult result = call(question->name, question->version, function, bytes, &made);
    if (result == CUDA_SUCCESS)
        give_back(question->name, made);
    return (int)result;
}

static void allocate(size_t bytes) {
    CUcontext context;
    ((PFN_cuInit_v2000)(uintptr_t)symbol("cuInit"))(0);
    ((PFN_cuDevicePrimaryCtxRetain_v7000)(uintptr_t)symbol("cuDevicePrimaryCtxRetain"))(&context, device);
    ((PFN_cuCtxSetCurrent_v4000)(uintptr_t)symbol("cuCtxSetCurrent"))(context);
    ((PFN_cuDeviceGetDefaultMemPool_v11020)(uintptr_t)symbol("cuDeviceGetDefaultMemPool"))(&pool, device);
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        const struct question *question = &questions[i];
        for (cuuint64_t flags = 0; flags <= CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM; flags++) {
            void *function = NULL;
            CUdriverProcAddressQueryResult status;
            CUdeviceptr made = 0;
            ask_v2(question->name, &function, question->version, flags, &status);
            if (function &&
                call(question->name, question->version, function, 0, &made) != CUDA_ERROR_NOT_SUPPORTED)
                printf("%s %d %d %d %d\n", question->name, question->version, (int)flags,
                       try_size(question, function, bytes), try_size(question, function, MIB));
        }
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "", *value = argc > 2 ? argv[2] : "";
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "lookups: %s\n", dlerror());
        return 3;
    }
    ask_v1 = (PFN_cuGetProcAddress_v11030)(uintptr_t)symbol("cuGetProcAddress");
    if (strcmp(value, "cuGetProcAddress") != 0)
        ask_v2 = (PFN_cuGetProcAddress_v12000)(uintptr_t)symbol("cuGetProcAddress_v2");
    if (strcmp(mode, "all") == 0)
        ask_all();
    else if (strcmp(mode, "odd") == 0)
        ask_oddly();
    else
        allocate((size_t)strtoull(value, NULL, 10) * MIB);
    return 0;
}
