/* The mappings of physical memory into parts of arrays. */
#ifndef PLIMSOLL_EMULATOR_MEMORY_ARRAY_MAPPING_H
#define PLIMSOLL_EMULATOR_MEMORY_ARRAY_MAPPING_H

#include "cuda/memory/vmm.h"

/* Maps physical memory at the place in `info`; a second mapping of the same place replaces the first. NULL
 * ends the mapping there. */
CUresult array_map(CUcontext context, const CUarrayMapInfo *info, struct physical *physical);
/* Ends all mappings of an array, mipmapped array or context that is freed. */
void array_unmap_all(const void *array_or_context);

#endif
