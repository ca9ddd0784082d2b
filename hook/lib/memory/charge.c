#include "memory/charge.h"

#include "broker/broker.h"
#include "memory/bytes.h"
#include "memory/current.h"
#include "memory/ledger.h"
#include "memory/pools/pools.h"
#include "memory/release.h"
#include "state.h"

/* Requests above half a block get blocks of their own, smaller ones share (PyTorch's caching allocator builds
 * on the same numbers). Without this rounding, requests of 1.1 MiB would hold nearly twice the line. */
#define SHARED_BYTES (PLIMSOLL_BLOCK_BYTES / 2)

bool plimsoll_begin(struct plimsoll_charge *charge, const char *function) {
    *charge = (struct plimsoll_charge){.function = function, .gpu = GPU_NONE};
    if (plimsoll_depth > 0)
        return false;
    enum plimsoll_attachment attachment = plimsoll_attach();
    charge->is_counting = attachment == ATTACHMENT_FULL;
    if (attachment < ATTACHMENT_FULL && attachment != ATTACHMENT_NONE)
        charge->refusal = CUDA_ERROR_SYSTEM_NOT_READY;
    return charge->is_counting;
}

/* Another thread may have made a context that is not measured yet. If the request does not fit, a context
 * that ended without a hooked call may still be charged: check that, and try again. */
static enum plimsoll_fit fit_after_check(unsigned gpu, uint64_t bytes, uint64_t extra_bytes) {
    plimsoll_await_measurement(gpu);
    enum plimsoll_fit fit = plimsoll_fit(gpu, bytes, extra_bytes);
    bool is_freed = fit != FIT_RESERVED && plimsoll_contexts_check((int)gpu);
    return is_freed ? plimsoll_fit(gpu, bytes, extra_bytes) : fit;
}

bool plimsoll_charge_gpu(int gpu, uint64_t bytes, uint64_t extra_bytes, const char *function) {
    if (gpu == GPU_UNLISTED)
        return plimsoll_admit_unlisted(bytes - extra_bytes, function);
    bool fits = fit_after_check((unsigned)gpu, bytes, extra_bytes) == FIT_RESERVED;
    if (!fits)
        plimsoll_count_denial(gpu, bytes - extra_bytes, function);
    return fits;
}

bool plimsoll_reserve_patiently(const struct plimsoll_charge *charge, uint64_t extra_bytes) {
    enum plimsoll_fit found;
    unsigned turn = 0, gpu = (unsigned)charge->gpu;
    do
        found = fit_after_check(gpu, charge->bytes, extra_bytes);
    while (found == FIT_PAST_GRANT &&
           plimsoll_wait_for_memory(gpu, charge->bytes - extra_bytes, turn++, charge->function));
    if (found != FIT_RESERVED)
        plimsoll_count_denial(charge->gpu, charge->bytes - extra_bytes, charge->function);
    return found == FIT_RESERVED;
}

static CUresult reserve(struct plimsoll_charge *charge, int gpu, uint64_t bytes, uint64_t extra_bytes) {
    charge->gpu = gpu;
    charge->bytes = bytes;
    plimsoll_refresh();
    plimsoll_pools_make_room(gpu, bytes - extra_bytes);
    bool fits =
        gpu == GPU_NONE || (gpu >= 0 ? plimsoll_reserve_patiently(charge, extra_bytes)
                                     : plimsoll_charge_gpu(gpu, bytes, extra_bytes, charge->function));
    if (!fits)
        return charge->refusal = CUDA_ERROR_OUT_OF_MEMORY;
    plimsoll_depth++;
    return CUDA_SUCCESS;
}

CUresult plimsoll_reserve(struct plimsoll_charge *charge, int gpu, uint64_t bytes) {
    return reserve(charge, gpu, bytes, 0);
}

/* The bytes that the driver takes beyond the request. */
static uint64_t beyond(uint64_t bytes) {
    return bytes > SHARED_BYTES ? plimsoll_rounded(bytes, PLIMSOLL_BLOCK_BYTES) - bytes : 0;
}

CUresult plimsoll_reserve_blocks(struct plimsoll_charge *charge, int gpu, uint64_t bytes) {
    uint64_t extra_bytes = beyond(bytes);
    return reserve(charge, gpu, bytes + extra_bytes, extra_bytes);
}

bool plimsoll_adjust_blocks(struct plimsoll_charge *charge, uint64_t bytes) {
    uint64_t extra_bytes = beyond(bytes), now_bytes = bytes + extra_bytes;
    if (charge->gpu == GPU_NONE)
        return true;
    if (now_bytes > charge->bytes &&
        !plimsoll_charge_gpu(charge->gpu, now_bytes - charge->bytes, extra_bytes, charge->function))
        return false;
    if (now_bytes < charge->bytes)
        plimsoll_uncharge(charge->gpu, charge->bytes - now_bytes);
    charge->bytes = now_bytes;
    return true;
}

CUresult plimsoll_commit(struct plimsoll_charge *charge, CUresult result, enum plimsoll_kind kind,
                         uint64_t key, uint64_t with) {
    if (!charge->is_counting)
        return result;
    plimsoll_depth--;
    if (charge->gpu == GPU_NONE)
        return result;
    struct plimsoll_holding holding = {.key = key,
                                       .bytes = charge->bytes,
                                       .with = with,
                                       .references = 1,
                                       .gpu = (int16_t)charge->gpu,
                                       .kind = (uint8_t)kind};
    if (result != CUDA_SUCCESS) {
        plimsoll_uncharge_and_tell(charge->gpu, charge->bytes);
        return result;
    }
    plimsoll_remember(holding);
    if (charge->gpu >= 0)
        plimsoll_ledger_note_peak(plimsoll.counts, plimsoll.slot, (unsigned)charge->gpu);
    return result;
}
