/* The one policy: reserve, call the driver, commit or return. Every allocating hook has this shape:
 *
 *     struct plimsoll_charge charge;
 *     if (!plimsoll_begin(&charge, "cuMemAlloc_v2"))
 *         return charge.refusal ? charge.refusal : REAL(cuMemAlloc_v2)(dptr, bytesize);
 *     if (plimsoll_reserve_blocks(&charge, plimsoll_gpu_of_current(), bytesize))
 *         return charge.refusal;
 *     CUresult result = REAL(cuMemAlloc_v2)(dptr, bytesize);
 *     return plimsoll_commit(&charge, result, HELD_MEMORY, *dptr, context);
 *
 * What is charged is what the driver takes for it, as far as that is known: whole blocks for what it does not
 * cut from a shared one. Of pools (pools.h) what it keeps reserved counts. The rest, as half-empty shared
 * blocks, shows in NVML alone, and comes back as `excess_bytes`.
 */
#ifndef PLIMSOLL_CHARGE_H
#define PLIMSOLL_CHARGE_H

#include "driver/gpus.h"
#include "state.h"

struct plimsoll_charge {
    const char *function;
    uint64_t bytes;
    int gpu;          /* GPU_NONE: nothing is charged */
    bool is_counting; /* false: not under Plimsoll, or inside another hook */
    CUresult refusal;
};

/* True where this thread's call is to be counted: attached, and not already inside a hook. Waits for limits
 * if the program never called cuInit. `refusal` says why not, or is CUDA_SUCCESS to pass through. */
bool plimsoll_begin(struct plimsoll_charge *charge, const char *function);

/* Reserves on the GPU that the caller found after plimsoll_begin. CUDA_SUCCESS, and this thread is inside the
 * hook until plimsoll_commit; or CUDA_ERROR_OUT_OF_MEMORY. */
CUresult plimsoll_reserve(struct plimsoll_charge *charge, int gpu, uint64_t bytes);

/* The same for what the driver takes in blocks. The part of the last block that was not asked for may stand
 * past the line: a declaration can always be used up by one request of that size. */
CUresult plimsoll_reserve_blocks(struct plimsoll_charge *charge, int gpu, uint64_t bytes);

/* After the driver's call: remembers `key` with what was reserved, or gives the reservation back. Returns the
 * driver's result. `with` is the context that the memory dies with, 0 for none. */
CUresult plimsoll_commit(struct plimsoll_charge *charge, CUresult result, enum plimsoll_kind kind,
                         uint64_t key, uint64_t with);

/* Adds `charge->bytes` to the word of `charge->gpu`, a GPU of `limits`, waiting where they are within the
 * line but past the grant. False, counted and told, if the line forbids. */
bool plimsoll_reserve_patiently(const struct plimsoll_charge *charge, uint64_t extra_bytes);

/* Makes a reservation in blocks larger or smaller, when only the driver's answer tells the size; false, and
 * as it was, if the line forbids. */
bool plimsoll_adjust_blocks(struct plimsoll_charge *charge, uint64_t bytes);

/* Never waits. Adds `bytes` to this process's word if the line allows, where `extra_bytes` of them may stand
 * past it; else counts and tells the refusal. Goes by the limits as last read. */
bool plimsoll_charge_gpu(int gpu, uint64_t bytes, uint64_t extra_bytes, const char *function);

#endif
