/* The table of all memory that the driver knows, by address. */
#ifndef PLIMSOLL_EMULATOR_MEMORY_TABLE_H
#define PLIMSOLL_EMULATOR_MEMORY_TABLE_H

#include "cuda/driver.h"

#define MEMORY_GRANULE ((size_t)2 << 20)

enum memory_kind {
    MEMORY_DEVICE,
    MEMORY_MANAGED,
    MEMORY_POOLED,     /* charged through its pool */
    MEMORY_MAPPED,     /* charged through cuMemCreate's handle */
    MEMORY_HOST,       /* page-locked; never charged */
    MEMORY_REGISTERED, /* the program's own memory, page-locked */
    MEMORY_IMPORTED,   /* memory of another process; charged there */
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
    struct block *block; /* block of a small allocation */
    CUmemoryPool pool;
    struct graph_allocation *graph;
    struct share
        *share; /* share of memory from or offered to another process, unless the block has the share */
    uint64_t share_offset; /* for imported memory: its place in the share */
    unsigned opens;        /* cuIpcOpenMemHandle calls; with none, imported memory is freed like a pool's */
    unsigned long long id;
};

static inline size_t memory_round_up(size_t bytes, size_t granule) {
    return (bytes + granule - 1) / granule * granule;
}

/* The allocation that holds an address; NULL = none. Valid until the next add or remove. */
struct allocation *memory_find(uint64_t address);
/* The first allocation that `wanted` accepts; NULL = none. */
struct allocation *memory_search(bool (*wanted)(const struct allocation *allocation, const void *closure),
                                 const void *closure);
/* True if one allocation holds all of [address, address + bytes). */
bool memory_holds(uint64_t address, size_t bytes);
/* Enters an allocation and gives it its id. False without host memory. */
bool memory_add(const struct allocation *allocation);
void memory_remove(uint64_t base);
/* Calls `act`, which may remove the row, for each row of a context. */
void memory_each_of(CUcontext context, void (*act)(struct allocation *allocation));
/* Makes room for one more row, so that the next add succeeds. False without host memory. */
bool memory_reserve(void);
/* Maps lazily backed memory of `bytes`; 0 if there is no address space. */
uint64_t memory_back(size_t bytes);
void memory_unback(uint64_t base, size_t bytes);

#endif
