/* Device memory and its charges.
 *
 * Contents live in lazily backed anonymous memory at the very address that the program gets. So copies
 * work, and untouched memory costs no RAM, even 20 GiB of it. Charges come in units of 2 MiB: small
 * allocations of a context share blocks of that size, and larger ones are rounded up to it. */
#ifndef PLIMSOLL_EMULATOR_MEMORY_H
#define PLIMSOLL_EMULATOR_MEMORY_H

#include "cuda/memory/table.h"

/* Charges and backs device memory in a context. */
CUresult memory_allocate(CUcontext context, enum memory_kind kind, size_t bytes, uint64_t *base);
/* Offers an allocation of device memory, with its whole block, to other processes. *offset is the
 * allocation's place in the share. Fails with OUT_OF_MEMORY. */
CUresult memory_offer(struct allocation *allocation, struct share **share, uint64_t *offset);
/* Refunds, unmaps and removes an allocation of any kind but MAPPED. */
void memory_release(struct allocation *allocation);
/* Releases all allocations of a context. */
void memory_free_all(CUcontext context);

#endif
