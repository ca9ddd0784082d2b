#include "cuda/memory/pool/pool.h"

#include "cuda/context/context.h"
#include "cuda/memory/table.h"

enum { ALIGNMENT = 512 };
#define CHUNK ((size_t)32 << 20) /* NVIDIA's pools grow by this size */

static CUmemoryPool first;                   /* lock */
static CUmemoryPool defaults[NODE_MAX_GPUS]; /* lock; by device, made at first use */
static CUmemoryPool currents[NODE_MAX_GPUS]; /* lock; NULL = the default one */

CUmemoryPool pool_new(CUdevice device) {
    static uint64_t last_id; /* lock */
    CUmemoryPool pool = object_new(OBJECT_POOL, sizeof *pool);
    if (!pool)
        return NULL;
    pool->device = device;
    pool->gpu = driver.gpus[device];
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    pool->id = ++last_id;
    pool->next = first;
    first = pool;
    return pool;
}

static CUmemoryPool default_of(CUdevice device) {
    if (!defaults[device]) {
        defaults[device] = pool_new(device);
        if (defaults[device])
            defaults[device]->is_default = true;
    }
    return defaults[device];
}

CUmemoryPool pool_current(CUdevice device) {
    return currents[device] ? currents[device] : default_of(device);
}

/* Records in the book how much pools reserve and how much of that is unused. */
static void note(const struct CUmemPoolHandle_st *pool, int64_t reserved_bytes, int64_t used_bytes) {
    book_note(&driver.book, pool->gpu, BOOK_POOLED, reserved_bytes);
    book_note(&driver.book, pool->gpu, BOOK_POOLED_FREE, reserved_bytes - used_bytes);
}

static void shrink(CUmemoryPool pool, size_t keep_bytes) {
    size_t needed = memory_round_up(pool->used_bytes, MEMORY_GRANULE);
    size_t target = keep_bytes > needed ? keep_bytes : needed;
    target = memory_round_up(target, MEMORY_GRANULE);
    if (target >= pool->reserved_bytes)
        return;
    book_refund(&driver.book, pool->gpu, pool->reserved_bytes - target);
    note(pool, (int64_t)target - (int64_t)pool->reserved_bytes, 0);
    pool->reserved_bytes = target;
}

static size_t threshold(const struct CUmemPoolHandle_st *pool) {
    return pool->threshold_bytes > pool->reserved_bytes ? pool->reserved_bytes : pool->threshold_bytes;
}

void pool_trim_all(void) {
    for (CUmemoryPool pool = first; pool; pool = pool->next)
        shrink(pool, threshold(pool));
}

static bool grow(CUmemoryPool pool, size_t granule) {
    size_t target = memory_round_up(pool->used_bytes, granule);
    if (target <= pool->reserved_bytes)
        return true;
    if (pool->most_bytes && target > memory_round_up(pool->most_bytes, MEMORY_GRANULE))
        return false;
    if (!book_charge(&driver.book, pool->gpu, target - pool->reserved_bytes))
        return false;
    note(pool, (int64_t)(target - pool->reserved_bytes), 0);
    pool->reserved_bytes = target;
    if (pool->reserved_high_bytes < target)
        pool->reserved_high_bytes = target;
    return true;
}

static void forget(CUmemoryPool pool) {
    CUmemoryPool *link = &first;
    while (*link != pool)
        link = &(*link)->next;
    *link = pool->next;
    object_free(pool);
}

void pool_returned(CUmemoryPool pool, size_t size) {
    size_t bytes = memory_round_up(size, ALIGNMENT);
    pool->used_bytes -= bytes;
    note(pool, 0, -(int64_t)bytes);
    if (!pool->dying)
        return;
    shrink(pool, 0);
    if (!pool->used_bytes)
        forget(pool);
}

uint64_t pool_take(CUmemoryPool pool, CUcontext context, size_t size) {
    size_t bytes = memory_round_up(size, ALIGNMENT);
    struct allocation allocation = {.size = size,
                                    .kind = MEMORY_POOLED,
                                    .context = context->owner,
                                    .gpu = pool->gpu,
                                    .device = pool->device,
                                    .pool = pool};
    if (bytes < size || bytes > 1ull << 46)
        return 0;
    pool->used_bytes += bytes;
    bool fits = grow(pool, CHUNK) || grow(pool, MEMORY_GRANULE);
    allocation.base = fits ? memory_back(size) : 0;
    if (!allocation.base || !memory_add(&allocation)) {
        pool->used_bytes -= bytes;
        return 0;
    }
    note(pool, 0, (int64_t)bytes);
    if (pool->used_high_bytes < pool->used_bytes)
        pool->used_high_bytes = pool->used_bytes;
    return allocation.base;
}

bool pool_is(CUmemoryPool pool) {
    return object_is(pool, OBJECT_POOL) && !pool->dying;
}

static CUresult create(CUmemoryPool *pool, const CUmemPoolProps *props) {
    if (!pool || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!driver_has_device(props->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    if (props->handleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    *pool = pool_new(props->location.id);
    if (!*pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*pool)->most_bytes = props->maxSize;
    (*pool)->handle_types = props->handleTypes;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
    CUresult entered = driver_enter();
    return entered ? entered : driver_leave(create(pool, props));
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!pool_is(pool) || pool->is_default)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (currents[pool->device] == pool)
        currents[pool->device] = NULL;
    pool->dying = true;
    shrink(pool, 0);
    if (!pool->used_bytes)
        forget(pool);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!pool_is(pool))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    shrink(pool, keep_bytes);
    return driver_leave(CUDA_SUCCESS);
}

/* Defines a function that returns the pool that `find` gives for a device. */
#define GETTER(name, find)                                                                                   \
    CUresult name(CUmemoryPool *pool, CUdevice device) {                                                     \
        CUresult entered = driver_enter();                                                                   \
        if (entered)                                                                                         \
            return entered;                                                                                  \
        if (!driver_has_device(device))                                                                      \
            return driver_leave(CUDA_ERROR_INVALID_DEVICE);                                                  \
        if (!pool)                                                                                           \
            return driver_leave(CUDA_ERROR_INVALID_VALUE);                                                   \
        *pool = find(device);                                                                                \
        return driver_leave(*pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);                                \
    }

GETTER(cuDeviceGetDefaultMemPool, default_of)
GETTER(cuDeviceGetMemPool, pool_current)

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!driver_has_device(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    if (!pool_is(pool) || pool->device != device || pool->is_imported)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    currents[device] = pool;
    return driver_leave(CUDA_SUCCESS);
}
