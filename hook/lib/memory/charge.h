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

/* Keeps what was charged for `holding.key` until that is freed; if there is no memory to, until this process
 * ends. */
void plimsoll_remember(struct plimsoll_holding holding);

/* Makes a reservation in blocks larger or smaller, when only the driver's answer tells the size; false, and
 * as it was, if the line forbids. */
bool plimsoll_adjust_blocks(struct plimsoll_charge *charge, uint64_t bytes);

/* Off the books: what a holding was charged, or what it referred to. */
void plimsoll_give_back(const struct plimsoll_holding *holding);

/* One reference more or less to what cuMemCreate made or an import brought; with the last it is given back.
 */
void plimsoll_refer(uint64_t handle, int change);

/* Counts and tells a refusal. */
void plimsoll_count_denial(int gpu, uint64_t bytes, const char *function);

/* Never waits. Adds `bytes` to this process's word if the line allows, where `extra_bytes` of them may stand
 * past it; else counts and tells the refusal. Goes by the limits as last read. */
bool plimsoll_charge_gpu(int gpu, uint64_t bytes, uint64_t extra_bytes, const char *function);

/* After a free: off the books, or back on them if the driver refused. */
CUresult plimsoll_settle_free(CUresult result, const struct plimsoll_holding *holding);

/* A freeing hook. Forgotten before the driver's call, since the driver may hand the same name to another
 * thread right after it; given back after the call, since until then the memory is taken. What is not known
 * here goes to the driver all the same. */
#define PLIMSOLL_FREE(symbol, held, key, ...)                                                                \
    do {                                                                                                     \
        struct plimsoll_holding holding;                                                                     \
        bool is_known =                                                                                      \
            plimsoll_depth == 0 && plimsoll_holdings_take(&plimsoll.holdings, held, key, &holding);          \
        plimsoll_depth++;                                                                                    \
        CUresult result = REAL(symbol)(__VA_ARGS__);                                                         \
        plimsoll_depth--;                                                                                    \
        return is_known ? plimsoll_settle_free(result, &holding) : result;                                   \
    } while (0)

static inline bool plimsoll_is_attached(void) {
    return __atomic_load_n(&plimsoll.standing, __ATOMIC_ACQUIRE) == STANDING_ATTACHED;
}

static inline bool plimsoll_is_whole(void) {
    return __atomic_load_n(&plimsoll.flags, __ATOMIC_RELAXED) & PLIMSOLL_FLAG_WHOLE_GPUS;
}

#endif
