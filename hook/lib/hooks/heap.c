/* The heap of device-side malloc and the buffer of device-side printf, which a program resizes by
 * cuCtxSetLimit.
 *
 * Their default size is part of a context's cost. The size beyond that is charged to the context. The driver
 * may take the memory only when a kernel that needs it is loaded, but then a refusal is no longer possible.
 * Stacks are left to the measurements, because their cost depends on the card and the kernels.
 */
#include "driver/driver.h"
#include "memory/bytes.h"
#include "memory/charge.h"
#include "memory/current.h"
#include "memory/ledger.h"
#include "memory/release.h"

static enum plimsoll_kind kind_of(CUlimit limit) {
    if (limit == CU_LIMIT_MALLOC_HEAP_SIZE)
        return HELD_HEAP;
    return limit == CU_LIMIT_PRINTF_FIFO_SIZE ? HELD_PRINTF : (enum plimsoll_kind)0;
}

/* The size that every new context on the GPU has, kept from before the program first changed it. */
static uint64_t base_of(int gpu, enum plimsoll_kind kind, uint64_t now_bytes) {
    pthread_mutex_lock(&plimsoll.context_lock);
    struct plimsoll_contexts *here = &plimsoll.contexts[gpu];
    uint64_t *base = kind == HELD_HEAP ? &here->heap_base : &here->printf_base;
    if (*base == 0)
        *base = now_bytes + 1;
    uint64_t base_bytes = *base - 1;
    pthread_mutex_unlock(&plimsoll.context_lock);
    return base_bytes;
}

static uint64_t charged_for(enum plimsoll_kind kind, uint64_t context) {
    struct plimsoll_holding held;
    return plimsoll_holdings_get(&plimsoll.holdings, kind, context, &held) ? held.bytes : 0;
}

/* Makes the charge for a context, including `reserved`, equal to its present size. Several threads may do
 * this for one context. The charge is taken and put back under the lock, so that none is lost. */
static void settle(const struct plimsoll_charge *reserved, enum plimsoll_kind kind, uint64_t context,
                   uint64_t bytes) {
    struct plimsoll_holding held = {.key = context, .with = context, .references = 1, .kind = (uint8_t)kind};
    held.gpu = (int16_t)reserved->gpu;
    pthread_mutex_lock(&plimsoll.context_lock);
    uint64_t charged = charged_for(kind, context) + reserved->bytes;
    held.bytes = bytes;
    plimsoll_remember(held);
    if (bytes > charged)
        plimsoll_ledger_add(plimsoll.counts, plimsoll.slot, (unsigned)held.gpu, bytes - charged);
    pthread_mutex_unlock(&plimsoll.context_lock);
    held.bytes = plimsoll_minus(charged, bytes);
    plimsoll_give_back(&held);
}

/* For a context on a GPU of `limits`. The size that the driver reports afterwards is the one that counts. */
static CUresult resize(struct plimsoll_charge *charge, int gpu, uint64_t context, CUlimit limit,
                       size_t value) {
    enum plimsoll_kind kind = kind_of(limit);
    size_t now = 0;
    /* The charge dies with the context, which must be the present one (memory/current.c). */
    plimsoll_contexts_check(gpu);
    if (CALLED(cuCtxGetLimit)(&now, limit) != CUDA_SUCCESS)
        return REAL(cuCtxSetLimit)(limit, value);
    uint64_t base_bytes = base_of(gpu, kind, now);
    uint64_t missing = plimsoll_minus(plimsoll_minus(value, base_bytes), charged_for(kind, context));
    if (plimsoll_reserve(charge, gpu, missing))
        return charge->refusal;
    CUresult result = REAL(cuCtxSetLimit)(limit, value);
    CALLED(cuCtxGetLimit)(&now, limit);
    plimsoll_depth--;
    settle(charge, kind, context, plimsoll_minus(now, base_bytes));
    return result;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    struct plimsoll_charge charge;
    if (!kind_of(limit))
        return REAL(cuCtxSetLimit)(limit, value);
    if (!plimsoll_begin(&charge, "cuCtxSetLimit"))
        return charge.refusal ? charge.refusal : REAL(cuCtxSetLimit)(limit, value);
    uint64_t context = plimsoll_current_context();
    int gpu = plimsoll_gpu_of_current_context(context);
    return gpu < 0 ? REAL(cuCtxSetLimit)(limit, value) : resize(&charge, gpu, context, limit, value);
}
