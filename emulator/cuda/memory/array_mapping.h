/* Which physical memory is mapped into which part of an array. */
#ifndef PLIMSOLL_EMULATOR_MEMORY_ARRAY_MAPPING_H
#define PLIMSOLL_EMULATOR_MEMORY_ARRAY_MAPPING_H

#include "cuda/memory/vmm.h"

/* Maps physical memory where `info` says; a second mapping of the same place takes the first one's. NULL ends
 * the mapping there. */
CUresult array_map(CUcontext context, const CUarrayMapInfo *info, struct physical *physical);
/* Ends all mappings of an array, mipmapped array or context that goes. */
void array_unmap_all(const void *array_or_context);

#endif
