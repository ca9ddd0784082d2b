/* Kernels that spin, as persistent ones and those of collectives do. A kernel named `spin` has the parameters
 *
 *   u64 length_ns, u64 address, u32 value, u64 start_address, u32 start_value
 *
 * It has started as soon as its process gets the GPU with this kernel at the head of its stream. Then it
 * stores start_value at start_address, unless that is 0, occupies its process's slices until the word at
 * `address` has come to `value`, and needs length_ns more. Meanwhile work in other streams of its process
 * runs beside it. */
#ifndef PLIMSOLL_EMULATOR_SPIN_H
#define PLIMSOLL_EMULATOR_SPIN_H

#include "cuda/stream/work.h"

/* The progress of a kernel that spins. */
struct spin {
    enum { SPIN_NEW, SPIN_BEHIND, SPIN_AT_HEAD, SPIN_STARTED, SPIN_OVER } phase;
    uint64_t mark; /* mark of the slice in which the kernel starts */
};

/* Turns a launch with these parameters into work; ILLEGAL_ADDRESS if an address lies in no known memory. */
CUresult spin_prepare(struct work *work);
/* Advances a kernel that is first in its stream's list. True once the kernel has stopped spinning; its
 * remaining run time is then the stream's latest work. Otherwise *due_ns is the time for the next check,
 * if that time is known. */
bool spin_go_on(struct spin *spin, CUstream stream, const struct work *work, uint64_t *due_ns);
/* Ends a kernel that may still spin. */
void spin_drop(struct spin *spin, CUstream stream);

#endif
