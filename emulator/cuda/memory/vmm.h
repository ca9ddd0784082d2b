/* Physical memory, made by cuMemCreate or imported. */
#ifndef PLIMSOLL_EMULATOR_VMM_H
#define PLIMSOLL_EMULATOR_VMM_H

#include "cuda/memory/share.h"

#define PHYSICAL CUmemGenericAllocationHandle

struct physical {
    struct object object;
    size_t size;
    CUmemAllocationProp props;
    int gpu, fd;
    struct share *share; /* NULL = never exported nor imported; else the share owns the descriptor */
    unsigned uses;       /* number of handles and mappings */
};

/* The physical memory of a handle; NULL for a stale or foreign one. */
struct physical *vmm_physical(PHYSICAL handle);
void vmm_release(struct physical *physical);

#endif
