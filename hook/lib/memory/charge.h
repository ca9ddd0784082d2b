/* The one policy: reserve, call the driver, commit or give back. Every allocating hook has this shape:
 *
 *     struct plimsoll_charge charge;
 *     if (!plimsoll_begin(&charge, "cuMemAlloc_v2"))
 *         return charge.refusal ? charge.refusal : REAL(cuMemAlloc_v2)(dptr, bytesize);
 *     if (plimsoll_reserve_blocks(&charge, plimsoll_gpu_of_current(), bytesize))
 *         return charge.refusal;
 *     CUresult result = REAL(cuMemAlloc_v2)(dptr, bytesize);
 *     return plimsoll_commit(&charge, result, HELD_MEMORY, *dptr, context);
 *
 * A charge is what the driver takes for the request, as far as that is known: whole blocks, unless the driver
 * cuts the memory from a shared block. A pool (pools/) is charged what it keeps reserved. The rest, such as
 * half-empty shared blocks, shows in NVML alone, and comes back as `excess_bytes`.
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

/* True where this thread's call counts: the process is attached, and the thread is not inside a hook already.
 * Waits for limits if the program never called cuInit. If false, `refusal` is the error to return, or
 * CUDA_SUCCESS to pass the call through. */
bool plimsoll_begin(struct plimsoll_charge *charge, const char *function);

/* Reserves `bytes` on the GPU that the caller found after plimsoll_begin. CUDA_SUCCESS: this thread is inside
 * the hook until plimsoll_commit. CUDA_ERROR_OUT_OF_MEMORY: the line forbids the request. */
CUresult plimsoll_reserve(struct plimsoll_charge *charge, int gpu, uint64_t bytes);

/* The same for memory that the driver takes in blocks. The unrequested part of the last block may stand past
 * the line, so that one request of a declaration's size can always use the declaration up. */
CUresult plimsoll_reserve_blocks(struct plimsoll_charge *charge, int gpu, uint64_t bytes);

/* After the driver's call: remembers `key` with the reserved bytes, or gives the reservation back. Returns
 * the driver's result. `with` is the context that the memory dies with, 0 for none. */
CUresult plimsoll_commit(struct plimsoll_charge *charge, CUresult result, enum plimsoll_kind kind,
                         uint64_t key, uint64_t with);

/* Adds `charge->bytes` to the word of `charge->gpu`, a GPU of `limits`. Waits where the bytes are within
 * the line but past the grant. False if the line forbids the request: then the refusal is counted and
 * reported. */
bool plimsoll_reserve_patiently(const struct plimsoll_charge *charge, uint64_t extra_bytes);

/* Makes a reservation in blocks larger or smaller, when only the driver's answer shows the size. False if the
 * line forbids that; the reservation is then unchanged. */
bool plimsoll_adjust_blocks(struct plimsoll_charge *charge, uint64_t bytes);

/* Adds `bytes` to this process's word if the line allows; `extra_bytes` of them may stand past it. Otherwise
 * counts and reports the refusal. Never waits, and uses the limits as last read. */
bool plimsoll_charge_gpu(int gpu, uint64_t bytes, uint64_t extra_bytes, const char *function);

#endif
