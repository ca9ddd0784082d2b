/* Every stretch of memory that the driver knows, by address, and what of it is charged to the GPU.
 *
 * Contents live in lazily backed anonymous memory at the very address the program gets, so copies work and
 * 20 GiB that nobody touches cost nothing. Charges come in 2 MiB: small allocations of a context share blocks
 * of that size, larger ones are rounded up to it. */
#ifndef PLIMSOLL_EMULATOR_MEMORY_H
#define PLIMSOLL_EMULATOR_MEMORY_H

#include "cuda/driver.h"

#define MEMORY_GRANULE ((size_t)2 << 20)

enum memory_kind {
    MEMORY_DEVICE,
    MEMORY_MANAGED,
    MEMORY_POOLED,     /* charged through its pool */
    MEMORY_MAPPED,     /* charged through cuMemCreate's handle */
    MEMORY_HOST,       /* page-locked; never charged */
    MEMORY_REGISTERED, /* the program's own, page-locked */
    MEMORY_IMPORTED,   /* another process's; charged there */
    MEMORY_GRAPH,      /* charged through the device's pool for graphs */
};

struct block;

struct allocation {
    uint64_t base;
    size_t size;
    enum memory_kind kind;
    CUcontext context; /* NULL for mapped memory */
    int gpu;
    CUdevice device;
    size_t charged_bytes;
    struct block *block; /* of a small allocation */
    CUmemoryPool pool;
    struct graph_allocation *graph;
    struct share *share;   /* of memory from or offered to another process, unless its block has it */
    uint64_t share_offset; /* of imported memory: where in the share it begins */
    unsigned opens;        /* by cuIpcOpenMemHandle; imported memory without one is freed like a pool's */
    unsigned flags;        /* of host memory */
    unsigned long long id;
};

static inline size_t memory_round_up(size_t bytes, size_t granule) {
    return (bytes + granule - 1) / granule * granule;
}

/* The allocation that holds an address; NULL = none. Valid until the next add or remove. */
struct allocation *memory_find(uint64_t address);
/* The first allocation that is wanted; NULL = none. */
struct allocation *memory_search(bool (*wanted)(const struct allocation *allocation, const void *closure),
                                 const void *closure);
/* Does one allocation hold all of [address, address + bytes)? */
bool memory_holds(uint64_t address, size_t bytes);
/* False without host memory. Gives the allocation its id. */
bool memory_add(const struct allocation *allocation);
void memory_remove(uint64_t base);
/* Lazily backed memory of `bytes`; 0 = no address space. */
uint64_t memory_back(size_t bytes);
void memory_unback(uint64_t base, size_t bytes);
/* Charges and backs device memory in a context. */
CUresult memory_allocate(CUcontext context, enum memory_kind kind, size_t bytes, uint64_t *base);
/* Offers an allocation of device memory, with its whole block, to other processes; where in the share it
 * begins. OUT_OF_MEMORY. */
CUresult memory_offer(struct allocation *allocation, struct share **share, uint64_t *offset);
/* Uncharges, unbacks and forgets an allocation of any kind but MAPPED. */
void memory_release(struct allocation *allocation);
/* All that belongs to a context. */
void memory_free_all(CUcontext context);

#endif
