/* Memory of the device, as it is charged to the GPU.
 *
 * Contents live in lazily backed anonymous memory at the very address the program gets, so copies work and
 * 20 GiB that nobody touches cost nothing. Charges come in 2 MiB: small allocations of a context share blocks
 * of that size, larger ones are rounded up to it. */
#ifndef PLIMSOLL_EMULATOR_MEMORY_H
#define PLIMSOLL_EMULATOR_MEMORY_H

#include "cuda/memory/table.h"

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
