/* Physical memory, as cuMemCreate makes it and others import it. */
#ifndef PLIMSOLL_EMULATOR_VMM_H
#define PLIMSOLL_EMULATOR_VMM_H

#include "cuda/memory/share.h"

#define PHYSICAL CUmemGenericAllocationHandle

struct physical {
    struct object object;
    size_t size;
    CUmemAllocationProp props;
    int gpu, fd;
    struct share *share; /* NULL = never exported nor imported; it has the descriptor then */
    unsigned uses;       /* handles and mappings */
};

/* NULL for a stale or foreign handle. */
struct physical *vmm_physical(PHYSICAL handle);
void vmm_release(struct physical *physical);
/* Another use of what lies in a share, which it takes over; NULL without host memory. */
struct physical *vmm_of_share(struct share *share);

#endif
