#include "memory/charge.h"

#include "broker/attach.h"
#include "memory/contexts.h"
#include "driver/driver.h"
#include "memory/ledger.h"
#include "broker/messages.h"
#include "memory/room.h"
#include "say.h"
#include "broker/waiting.h"

/* NVIDIA's driver hands out memory in blocks of 2 MiB: requests above half of one get blocks of their own,
 * smaller ones share (PyTorch's caching allocator builds on the same numbers). Without this rounding,
 * requests of 1.1 MiB would hold nearly twice the line. */
#define BLOCK_BYTES 0x200000u
#define SHARED_BYTES 0x100000u

bool plimsoll_begin(struct plimsoll_charge *charge, const char *function) {
    *charge = (struct plimsoll_charge){.function = function, .gpu = GPU_NONE};
    if (plimsoll_depth > 0)
        return false;
    enum plimsoll_standing standing = plimsoll_attach();
    charge->is_counting = standing == STANDING_ATTACHED;
    if (standing < STANDING_ATTACHED && standing != STANDING_TRANSPARENT)
        charge->refusal = CUDA_ERROR_SYSTEM_NOT_READY;
    return charge->is_counting;
}

void plimsoll_count_denial(int gpu, uint64_t bytes, const char *function) {
    __atomic_fetch_add(&plimsoll.counts->slots[plimsoll.slot].denied_count, 1, __ATOMIC_RELAXED);
    if (gpu == GPU_UNLISTED) {
        plimsoll_note("%s refused %llu bytes on a GPU this container was not given", function,
                      (unsigned long long)bytes);
        return;
    }
    uint64_t used = plimsoll_used((unsigned)gpu);
    uint64_t line_bytes = __atomic_load_n(&plimsoll.gpus[gpu].line_bytes, __ATOMIC_RELAXED);
    plimsoll_note("%s refused %llu bytes: %llu of %llu in use on %s", function, (unsigned long long)bytes,
                  (unsigned long long)used, (unsigned long long)line_bytes, plimsoll.gpus[gpu].uuid);
    plimsoll_tell_denied((unsigned)gpu, bytes, used, line_bytes, function);
}

/* What is missing may be what a context held that ended unseen. */
static enum plimsoll_fit fit(unsigned gpu, uint64_t bytes, uint64_t extra_bytes) {
    enum plimsoll_fit fit = plimsoll_fit(gpu, bytes, extra_bytes);
    bool is_freed = fit != FIT_RESERVED && plimsoll_contexts_look((int)gpu);
    return is_freed ? plimsoll_fit(gpu, bytes, extra_bytes) : fit;
}

bool plimsoll_charge_gpu(int gpu, uint64_t bytes, uint64_t extra_bytes, const char *function) {
    bool fits =
        gpu == GPU_UNLISTED ? plimsoll_is_whole() : fit((unsigned)gpu, bytes, extra_bytes) == FIT_RESERVED;
    if (!fits)
        plimsoll_count_denial(gpu, bytes - extra_bytes, function);
    return fits;
}

static void uncharge_gpu(int gpu, uint64_t bytes) {
    if (gpu >= 0 && bytes > 0)
        plimsoll_ledger_give_back(plimsoll.counts, plimsoll.slot, (unsigned)gpu, bytes);
}

/* Told outside every lock. */
static void uncharge_and_tell(int gpu, uint64_t bytes) {
    uncharge_gpu(gpu, bytes);
    if (gpu >= 0 && bytes > 0)
        plimsoll_tell_freed((unsigned)gpu, bytes);
}

bool plimsoll_reserve_patiently(const struct plimsoll_charge *charge, uint64_t extra_bytes) {
    enum plimsoll_fit found;
    unsigned turn = 0, gpu = (unsigned)charge->gpu;
    do
        found = fit(gpu, charge->bytes, extra_bytes);
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

/* How much more than asked for the driver takes. */
static uint64_t beyond(uint64_t bytes) {
    uint64_t rest = bytes > SHARED_BYTES ? bytes % BLOCK_BYTES : 0;
    uint64_t extra_bytes = rest ? BLOCK_BYTES - rest : 0;
    return bytes > UINT64_MAX - extra_bytes ? UINT64_MAX - bytes : extra_bytes;
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
        uncharge_gpu(charge->gpu, charge->bytes - now_bytes);
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
    if (result != CUDA_SUCCESS)
        uncharge_and_tell(charge->gpu, charge->bytes);
    else
        plimsoll_remember(holding);
    return result;
}

/* The driver hands out the address of memory, or the handle of an array, only when nothing has it any more:
 * what is still remembered under it ended unseen. */
static bool is_gone(const struct plimsoll_holding *before) {
    return before->is_used &&
           (before->kind == HELD_MEMORY || before->kind == HELD_ARRAY || before->kind == HELD_MIPMAP);
}

void plimsoll_remember(struct plimsoll_holding holding) {
    struct plimsoll_holding before;
    if (!plimsoll_holdings_replace(&plimsoll.holdings, holding, &before))
        plimsoll_fail("no memory to remember an allocation: it stays counted until this process ends");
    else if (is_gone(&before))
        plimsoll_give_back(&before);
}

/* Memory that was exported may live on under a handle imported in this very process. Which import that is, no
 * call tells: as many of the charges stay as there are imports. */
static void give_back_handle(const struct plimsoll_holding *handle) {
    uint64_t bytes = handle->sharing == SHARED_NOT
                         ? handle->bytes
                         : plimsoll_holdings_bequeath(&plimsoll.holdings, handle->gpu, handle->bytes);
    uncharge_and_tell(handle->gpu, bytes);
}

void plimsoll_refer(uint64_t handle, int change) {
    struct plimsoll_holding last;
    if (plimsoll_holdings_refer(&plimsoll.holdings, HELD_HANDLE, handle, change, &last))
        give_back_handle(&last);
}

void plimsoll_give_back(const struct plimsoll_holding *holding) {
    switch (holding->kind) {
    case HELD_HANDLE:
        give_back_handle(holding);
        break;
    case HELD_MAPPING:
        plimsoll_refer(holding->with, -1);
        break;
    case HELD_TILES:
        plimsoll_refer(holding->bytes, -1);
        break;
    case HELD_CAPTURE:
        plimsoll_capture_gone();
        break;
    case HELD_ARRAY:
    case HELD_MIPMAP:
        uncharge_and_tell(holding->gpu, holding->bytes);
        if (holding->bytes == 0) /* it had no memory of its own, but perhaps of handles */
            plimsoll_holdings_sweep(&plimsoll.holdings, holding->key, plimsoll_give_back);
        break;
    default:
        if (holding->pool)
            plimsoll_pool_returned(holding);
        else
            uncharge_and_tell(holding->gpu, holding->bytes);
    }
}

CUresult plimsoll_settle_free(CUresult result, const struct plimsoll_holding *holding) {
    if (result == CUDA_SUCCESS)
        plimsoll_give_back(holding);
    else
        plimsoll_holdings_put(&plimsoll.holdings, *holding);
    return result;
}
