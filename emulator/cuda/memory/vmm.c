/* Virtual memory management: address ranges, physical memory, and mappings between them. Physical memory is
 * charged while its handle or a mapping lives. It is backed by an anonymous file, so that two mappings of one
 * handle show the same contents. */
#include "cuda/memory/vmm.h"

#include <sys/mman.h>
#include <unistd.h>

#include "cuda/memory/memory.h"

struct range {
    struct range *next;
    uint64_t base;
    size_t size;
};

struct mapping {
    struct mapping *next;
    uint64_t base;
    size_t size;
    struct physical *physical;
};

static struct range *ranges;     /* lock */
static struct mapping *mappings; /* lock */

struct physical *vmm_physical(PHYSICAL handle) {
    void *object = (void *)(uintptr_t)handle;
    return object_is(object, OBJECT_PHYSICAL) ? object : NULL;
}

static CUresult check_props(const CUmemAllocationProp *props) {
    if (!props || props->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return driver_has_device(props->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *props,
                                       CUmemAllocationGranularity_flags option) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!granularity || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    CUresult result = check_props(props);
    if (result == CUDA_SUCCESS)
        *granularity = MEMORY_GRANULE;
    return driver_leave(result);
}

void vmm_release(struct physical *physical) {
    if (--physical->uses)
        return;
    if (physical->share)
        share_drop(physical->share);
    else {
        close(physical->fd);
        book_refund(&driver.book, physical->gpu, physical->size);
    }
    object_free(physical);
}

static CUresult create(PHYSICAL *handle, size_t size, const CUmemAllocationProp *props) {
    CUresult result = check_props(props);
    if (result)
        return result;
    if (!handle || !size || size % MEMORY_GRANULE)
        return CUDA_ERROR_INVALID_VALUE;
    int gpu = driver.gpus[props->location.id];
    struct physical *physical = object_new(OBJECT_PHYSICAL, sizeof *physical);
    if (!physical || !book_charge(&driver.book, gpu, size)) {
        if (physical)
            object_free(physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    physical->size = size;
    physical->props = *props;
    physical->gpu = gpu;
    physical->uses = 1;
    physical->fd = share_file(size);
    if (physical->fd < 0) {
        book_refund(&driver.book, gpu, size);
        object_free(physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = (PHYSICAL)(uintptr_t)physical;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(PHYSICAL *handle, size_t size, const CUmemAllocationProp *props,
                     unsigned long long flags) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    return driver_leave(flags ? CUDA_ERROR_INVALID_VALUE : create(handle, size, props));
}

CUresult cuMemRelease(PHYSICAL handle) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    struct physical *physical = vmm_physical(handle);
    if (!physical)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    vmm_release(physical);
    return driver_leave(CUDA_SUCCESS);
}

static uint64_t reserve_aligned(size_t size, size_t alignment) {
    if (size > SIZE_MAX - alignment)
        return 0;
    void *memory =
        mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return 0;
    uint64_t start = (uint64_t)(uintptr_t)memory, base = memory_round_up(start, alignment);
    if (base > start)
        memory_unback(start, base - start);
    memory_unback(base + size, start + alignment - base);
    return base;
}

/* Reserves addresses at the program's hint; 0 if the hint is in use or not a valid start. */
static uint64_t reserve_at(uint64_t hint, size_t size, size_t alignment) {
    if (!hint || hint % alignment)
        return 0;
    void *memory = mmap((void *)(uintptr_t)hint, size, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory == MAP_FAILED)
        return 0;
    if ((uint64_t)(uintptr_t)memory == hint)
        return hint;
    munmap(memory, size); /* kernels before 4.17 treat MAP_FIXED_NOREPLACE as a hint */
    return 0;
}

static CUresult reserve(CUdeviceptr *address, size_t size, size_t alignment, uint64_t hint) {
    if (!address || !size || size % MEMORY_GRANULE || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    struct range *range = calloc(1, sizeof *range);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    alignment = alignment > MEMORY_GRANULE ? alignment : MEMORY_GRANULE;
    range->base = reserve_at(hint, size, alignment);
    if (!range->base)
        range->base = reserve_aligned(size, alignment);
    if (!range->base) {
        free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->size = size;
    range->next = ranges;
    ranges = range;
    *address = range->base;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    return driver_leave(flags ? CUDA_ERROR_INVALID_VALUE : reserve(address, size, alignment, hint));
}

static bool overlaps_mapping(uint64_t base, size_t size) {
    for (const struct mapping *mapping = mappings; mapping; mapping = mapping->next)
        if (mapping->base < base + size && base < mapping->base + mapping->size)
            return true;
    return false;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    struct range **link = &ranges;
    while (*link && (*link)->base != address)
        link = &(*link)->next;
    struct range *range = *link;
    if (!range || range->size != size || overlaps_mapping(address, size))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *link = range->next;
    memory_unback(range->base, range->size);
    free(range);
    return driver_leave(CUDA_SUCCESS);
}

static bool is_reserved(uint64_t base, size_t size) {
    for (const struct range *range = ranges; range; range = range->next)
        if (base >= range->base && base + size <= range->base + range->size)
            return true;
    return false;
}

static CUresult map(uint64_t base, size_t size, struct physical *physical) {
    struct allocation allocation = {.base = base,
                                    .size = size,
                                    .kind = MEMORY_MAPPED,
                                    .gpu = physical->gpu,
                                    .device = physical->props.location.id};
    struct mapping *mapping = calloc(1, sizeof *mapping);
    void *there = (void *)(uintptr_t)base;
    if (!mapping || !memory_add(&allocation)) {
        free(mapping);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (mmap(there, size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd, 0) == MAP_FAILED) {
        memory_remove(base);
        free(mapping);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *mapping = (struct mapping){.next = mappings, .base = base, .size = size, .physical = physical};
    mappings = mapping;
    physical->uses++;
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, PHYSICAL handle,
                  unsigned long long flags) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    struct physical *physical = vmm_physical(handle);
    if (!physical || flags || offset || !size || size > physical->size || size % MEMORY_GRANULE ||
        address % MEMORY_GRANULE || !is_reserved(address, size) || overlaps_mapping(address, size))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(map(address, size, physical));
}

static void unmap(struct mapping **link) {
    struct mapping *mapping = *link;
    *link = mapping->next;
    memory_remove(mapping->base);
    mmap((void *)(uintptr_t)mapping->base, mapping->size, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    vmm_release(mapping->physical);
    free(mapping);
}

static size_t mapped_within(uint64_t base, size_t size) {
    size_t covered = 0;
    for (const struct mapping *mapping = mappings; mapping; mapping = mapping->next)
        if (mapping->base >= base && mapping->base + mapping->size <= base + size)
            covered += mapping->size;
    return covered;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!size || mapped_within(address, size) != size)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (struct mapping **link = &mappings; *link;) {
        if ((*link)->base >= address && (*link)->base < address + size)
            unmap(link);
        else
            link = &(*link)->next;
    }
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *descriptions, size_t count) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    if (!descriptions || !count || !size || mapped_within(address, size) != size)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    int protection = PROT_NONE;
    for (size_t i = 0; i < count; i++) {
        if (descriptions[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !driver_has_device(descriptions[i].location.id))
            return driver_leave(CUDA_ERROR_INVALID_DEVICE);
        if (descriptions[i].flags & CU_MEM_ACCESS_FLAGS_PROT_READ)
            protection |= PROT_READ;
        if (descriptions[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            protection |= PROT_WRITE;
    }
    int failed = mprotect((void *)(uintptr_t)address, size, protection);
    return driver_leave(failed ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

CUresult cuMemRetainAllocationHandle(PHYSICAL *handle, void *address) {
    CUresult entered = driver_enter();
    if (entered)
        return entered;
    uint64_t wanted = (uint64_t)(uintptr_t)address;
    for (struct mapping *mapping = mappings; handle && mapping; mapping = mapping->next) {
        if (wanted >= mapping->base && wanted < mapping->base + mapping->size) {
            mapping->physical->uses++;
            *handle = (PHYSICAL)(uintptr_t)mapping->physical;
            return driver_leave(CUDA_SUCCESS);
        }
    }
    return driver_leave(CUDA_ERROR_INVALID_VALUE);
}
