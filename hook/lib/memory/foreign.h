/* Memory that no process of this container exported, by its handle or its descriptor. */
#ifndef PLIMSOLL_FOREIGN_H
#define PLIMSOLL_FOREIGN_H

#include "memory/charge.h"

/* After the import of a handle: reserves the memory behind it. If the size stays unknown, only the smallest
 * size is reserved, and the call waits until NVML's figure for this process counts, which has the rest.
 * CUDA_SUCCESS or CUDA_ERROR_OUT_OF_MEMORY, both outside the hook. */
CUresult plimsoll_reserve_foreign(struct plimsoll_charge *charge, CUmemGenericAllocationHandle handle);

/* The bytes behind a descriptor of cuMemExportToShareableHandle; 0 for any other descriptor. */
uint64_t plimsoll_bytes_of_file(int file);

#endif
