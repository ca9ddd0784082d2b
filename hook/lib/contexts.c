/* Contexts take GPU memory of their own, which no allocation shows: hundreds of MiB on a real card. What one
 * costs here stands in `limits` once it was measured. It is charged once per process and GPU, with the first
 * context, and given back with the last.
 */
#include "contexts.h"

#include "charge.h"
#include "driver.h"
#include "attach.h"
#include "ledger.h"
#include "messages.h"

CUresult cuInit(unsigned int Flags) {
    struct plimsoll_charge charge;
    plimsoll_begin(&charge, "cuInit");
    return charge.refusal ? charge.refusal : REAL(cuInit)(Flags);
}

/* Counts a context that is about to be made; the first is charged. False if the line forbids it. */
static bool enter_context(int gpu, const char *function) {
    plimsoll_refresh(); /* not under the lock: it takes it where limits changed */
    if (gpu < 0)
        return gpu == GPU_NONE || plimsoll_charge_gpu(gpu, 0, 0, function);
    pthread_mutex_lock(&plimsoll.context_lock);
    struct plimsoll_contexts *here = &plimsoll.contexts[gpu];
    uint64_t bytes = __atomic_load_n(&plimsoll.gpus[gpu].context_bytes, __ATOMIC_RELAXED);
    bool fits = here->alive > 0 || plimsoll_charge_gpu(gpu, bytes, 0, function);
    if (fits && here->alive++ == 0)
        here->charged_bytes = bytes;
    pthread_mutex_unlock(&plimsoll.context_lock);
    return fits;
}

static void leave_context(int gpu) {
    if (gpu < 0)
        return;
    pthread_mutex_lock(&plimsoll.context_lock);
    struct plimsoll_contexts *here = &plimsoll.contexts[gpu];
    if (here->alive > 0 && --here->alive == 0) {
        struct plimsoll_holding charged = {.gpu = (int16_t)gpu, .bytes = here->charged_bytes};
        plimsoll_give_back(&charged);
    }
    pthread_mutex_unlock(&plimsoll.context_lock);
}

static void recharge(unsigned gpu) {
    struct plimsoll_contexts *here = &plimsoll.contexts[gpu];
    uint64_t bytes = __atomic_load_n(&plimsoll.gpus[gpu].context_bytes, __ATOMIC_RELAXED);
    if (here->alive == 0 || here->charged_bytes == bytes)
        return;
    plimsoll_ledger_reserve(plimsoll.counts, plimsoll.slot, gpu, bytes, PLIMSOLL_NO_LINE);
    plimsoll_ledger_give_back(plimsoll.counts, plimsoll.slot, gpu, here->charged_bytes);
    here->charged_bytes = bytes;
}

void plimsoll_recharge_contexts(void) {
    pthread_mutex_lock(&plimsoll.context_lock);
    for (unsigned gpu = 0; gpu < plimsoll.gpu_count; gpu++)
        recharge(gpu);
    pthread_mutex_unlock(&plimsoll.context_lock);
}

static void announce(int gpu) {
    if (gpu < 0)
        return;
    pthread_mutex_lock(&plimsoll.context_lock);
    bool is_first = !plimsoll.contexts[gpu].is_announced;
    plimsoll.contexts[gpu].is_announced = true;
    pthread_mutex_unlock(&plimsoll.context_lock);
    if (is_first)
        plimsoll_tell_context((unsigned)gpu);
}

/* --- created contexts ------------------------------------------------------------------------------------
 */

static CUresult after_create(struct plimsoll_charge *charge, CUresult result, const CUcontext *context,
                             int gpu) {
    charge->gpu = gpu < 0 ? GPU_NONE : gpu;
    charge->bytes = 0;
    plimsoll_commit(charge, result, HELD_CONTEXT, result == CUDA_SUCCESS ? (uintptr_t)*context : 0, 0);
    if (result == CUDA_SUCCESS)
        announce(gpu);
    else
        leave_context(gpu);
    return result;
}

#define CREATE_CONTEXT(symbol, context, device, ...)                                                         \
    do {                                                                                                     \
        struct plimsoll_charge charge;                                                                       \
        if (!plimsoll_begin(&charge, #symbol))                                                               \
            return charge.refusal ? charge.refusal : REAL(symbol)(__VA_ARGS__);                              \
        int gpu = plimsoll_gpu_of_device(device);                                                            \
        if (!enter_context(gpu, #symbol))                                                                    \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                 \
        plimsoll_depth++;                                                                                    \
        return after_create(&charge, REAL(symbol)(__VA_ARGS__), context, gpu);                               \
    } while (0)

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    CREATE_CONTEXT(cuCtxCreate, pctx, dev, pctx, flags, dev);
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    CREATE_CONTEXT(cuCtxCreate_v2, pctx, dev, pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
                        CUdevice dev) {
    CREATE_CONTEXT(cuCtxCreate_v3, pctx, dev, pctx, paramsArray, numParams, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
    CREATE_CONTEXT(cuCtxCreate_v4, pctx, dev, pctx, ctxCreateParams, flags, dev);
}

/* Everything that dies with a context leaves the books after the driver ended it. */
static CUresult after_destroy(CUresult result, CUcontext context) {
    struct plimsoll_holding known;
    if (result != CUDA_SUCCESS || context == NULL)
        return result;
    plimsoll_holdings_sweep(&plimsoll.holdings, (uintptr_t)context, plimsoll_give_back);
    if (plimsoll_holdings_take(&plimsoll.holdings, HELD_CONTEXT, (uintptr_t)context, &known))
        leave_context(known.gpu);
    return result;
}

static CUresult leave_hook(CUresult result) {
    plimsoll_depth--;
    return result;
}

#define DESTROY_CONTEXT(symbol, context)                                                                     \
    do {                                                                                                     \
        bool is_outer = plimsoll_depth++ == 0;                                                               \
        CUresult result = leave_hook(REAL(symbol)(context));                                                 \
        return is_outer ? after_destroy(result, context) : result;                                           \
    } while (0)

CUresult cuCtxDestroy(CUcontext ctx) {
    DESTROY_CONTEXT(cuCtxDestroy, ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    DESTROY_CONTEXT(cuCtxDestroy_v2, ctx);
}

/* --- primary contexts: one per device, counted by the driver ---------------------------------------------
 */

uint64_t plimsoll_primary_of_gpu(int gpu) {
    return gpu < 0 ? 0 : __atomic_load_n(&plimsoll.contexts[gpu].primary, __ATOMIC_ACQUIRE);
}

/* Sets the primary context on a GPU, returning the one before. */
static uint64_t swap_primary(int gpu, uint64_t context) {
    return gpu < 0 ? 0 : __atomic_exchange_n(&plimsoll.contexts[gpu].primary, context, __ATOMIC_ACQ_REL);
}

/* Each retain enters; all but the one that made the context leave again, so that the number alive stays one
 * whatever order threads come in. */
CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    struct plimsoll_charge charge;
    if (!plimsoll_begin(&charge, "cuDevicePrimaryCtxRetain"))
        return charge.refusal ? charge.refusal : REAL(cuDevicePrimaryCtxRetain)(pctx, dev);
    int gpu = plimsoll_gpu_of_device(dev);
    if (!enter_context(gpu, "cuDevicePrimaryCtxRetain"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    plimsoll_depth++;
    CUresult result = leave_hook(REAL(cuDevicePrimaryCtxRetain)(pctx, dev));
    if (result == CUDA_SUCCESS && swap_primary(gpu, (uintptr_t)*pctx) == 0)
        announce(gpu);
    else
        leave_context(gpu);
    return result;
}

static void end_primary(int gpu) {
    uint64_t context = swap_primary(gpu, 0);
    if (!context)
        return;
    plimsoll_holdings_sweep(&plimsoll.holdings, context, plimsoll_give_back);
    leave_context(gpu);
}

/* A release ends the context only when it was the last one; the driver keeps that count. A reset always. */
static CUresult after_release(CUresult result, CUdevice device) {
    unsigned flags;
    int is_active = 1;
    bool is_ours = __atomic_load_n(&plimsoll.standing, __ATOMIC_ACQUIRE) == STANDING_ATTACHED;
    if (result == CUDA_SUCCESS && is_ours &&
        CALLED(cuDevicePrimaryCtxGetState)(device, &flags, &is_active) == CUDA_SUCCESS && !is_active)
        end_primary(plimsoll_gpu_of_device(device));
    return result;
}

#define RELEASE_PRIMARY(symbol, device)                                                                      \
    do {                                                                                                     \
        bool is_outer = plimsoll_depth++ == 0;                                                               \
        CUresult result = leave_hook(REAL(symbol)(device));                                                  \
        return is_outer ? after_release(result, device) : result;                                            \
    } while (0)

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
    RELEASE_PRIMARY(cuDevicePrimaryCtxRelease, dev);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    RELEASE_PRIMARY(cuDevicePrimaryCtxRelease_v2, dev);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
    RELEASE_PRIMARY(cuDevicePrimaryCtxReset, dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    RELEASE_PRIMARY(cuDevicePrimaryCtxReset_v2, dev);
}
