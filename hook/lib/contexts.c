/* Contexts take GPU memory of their own, which no allocation shows: hundreds of MiB on a real card. What a
 * new one costs here stands in `limits` once it was measured, and is charged for as long as the context
 * lives. One made before that is not charged later: NVML shows it, and so it stands in `excess_bytes`.
 */
#include "contexts.h"

#include "charge.h"
#include "driver.h"
#include "attach.h"
#include "ledger.h"
#include "messages.h"
#include "room.h"
#include "waiting.h"

CUresult cuInit(unsigned int Flags) {
    struct plimsoll_charge charge;
    plimsoll_begin(&charge, "cuInit");
    return charge.refusal ? charge.refusal : REAL(cuInit)(Flags);
}

static uint64_t context_bytes(int gpu) {
    plimsoll_refresh();
    return gpu < 0 ? 0 : __atomic_load_n(&plimsoll.gpus[gpu].context_bytes, __ATOMIC_RELAXED);
}

/* The mark in `counts` is what the container's processes see of each other through NVML. */
static void note_made(int gpu, CUcontext context) {
    (void)context;
    if (gpu < 0)
        return;
    pthread_mutex_lock(&plimsoll.context_lock);
    bool is_first = !plimsoll.contexts[gpu].is_announced;
    plimsoll.contexts[gpu].is_announced = true;
    if (plimsoll.contexts[gpu].present++ == 0)
        plimsoll_ledger_note_context(plimsoll.counts, plimsoll.slot, (unsigned)gpu, true);
    pthread_mutex_unlock(&plimsoll.context_lock);
    if (is_first)
        plimsoll_tell_context((unsigned)gpu);
}

static void note_ended(int gpu) {
    if (gpu < 0)
        return;
    pthread_mutex_lock(&plimsoll.context_lock);
    if (plimsoll.contexts[gpu].present > 0 && --plimsoll.contexts[gpu].present == 0)
        plimsoll_ledger_note_context(plimsoll.counts, plimsoll.slot, (unsigned)gpu, false);
    pthread_mutex_unlock(&plimsoll.context_lock);
}

/* --- created contexts ------------------------------------------------------------------------------------
 */

/* A GPU that is not in `limits` (the container owns whole ones) has nothing to remember. */
static CUresult after_create(struct plimsoll_charge *charge, CUresult result, const CUcontext *context) {
    int gpu = charge->gpu = charge->gpu < 0 ? GPU_NONE : charge->gpu;
    plimsoll_commit(charge, result, HELD_CONTEXT, result == CUDA_SUCCESS ? (uintptr_t)*context : 0, 0);
    if (result == CUDA_SUCCESS)
        note_made(gpu, *context);
    return result;
}

#define CREATE_CONTEXT(symbol, context, device, ...)                                                         \
    do {                                                                                                     \
        struct plimsoll_charge charge;                                                                       \
        if (!plimsoll_begin(&charge, #symbol))                                                               \
            return charge.refusal ? charge.refusal : REAL(symbol)(__VA_ARGS__);                              \
        int gpu = plimsoll_gpu_of_device(device);                                                            \
        if (plimsoll_reserve(&charge, gpu, context_bytes(gpu)))                                              \
            return charge.refusal;                                                                           \
        return after_create(&charge, REAL(symbol)(__VA_ARGS__), context);                                    \
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
static void forget(CUcontext context) {
    plimsoll_holdings_sweep(&plimsoll.holdings, (uintptr_t)context, plimsoll_give_back);
    plimsoll_pools_look();
}

static CUresult after_destroy(CUresult result, CUcontext context) {
    struct plimsoll_holding known;
    if (result != CUDA_SUCCESS || context == NULL)
        return result;
    forget(context);
    if (plimsoll_holdings_take(&plimsoll.holdings, HELD_CONTEXT, (uintptr_t)context, &known)) {
        plimsoll_give_back(&known);
        note_ended(known.gpu);
    }
    return result;
}

static CUresult leave_hook(CUresult result) {
    plimsoll_depth--;
    return result;
}

#define DESTROY_CONTEXT(symbol, context)                                                                     \
    do {                                                                                                     \
        bool is_outer = plimsoll_depth++ == 0;                                                               \
        if (is_outer)                                                                                        \
            plimsoll_bursts_forget((uintptr_t)(context));                                                    \
        CUresult result = leave_hook(REAL(symbol)(context));                                                 \
        return is_outer ? after_destroy(result, context) : result;                                           \
    } while (0)

CUresult cuCtxDestroy(CUcontext ctx) {
    DESTROY_CONTEXT(cuCtxDestroy, ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    DESTROY_CONTEXT(cuCtxDestroy_v2, ctx);
}

/* The counted use of created contexts from before cuCtxPushCurrent: the last detach destroys. */
CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags) {
    struct plimsoll_holding known;
    CUresult result = REAL(cuCtxAttach)(pctx, flags);
    if (result == CUDA_SUCCESS && plimsoll_depth == 0)
        plimsoll_holdings_refer(&plimsoll.holdings, HELD_CONTEXT, (uintptr_t)*pctx, 1, &known);
    return result;
}

CUresult cuCtxDetach(CUcontext ctx) {
    struct plimsoll_holding known;
    bool is_outer = plimsoll_depth++ == 0;
    if (is_outer)
        plimsoll_bursts_forget((uintptr_t)ctx);
    CUresult result = leave_hook(REAL(cuCtxDetach)(ctx));
    if (result == CUDA_SUCCESS && is_outer &&
        plimsoll_holdings_refer(&plimsoll.holdings, HELD_CONTEXT, (uintptr_t)ctx, -1, &known)) {
        forget(ctx);
        plimsoll_give_back(&known);
        note_ended(known.gpu);
    }
    return result;
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

/* Reserved under the lock, so that two threads never ask for one context twice; waited for outside it. */
static enum plimsoll_fit try_to_enter(unsigned gpu, uint64_t bytes) {
    pthread_mutex_lock(&plimsoll.context_lock);
    struct plimsoll_contexts *here = &plimsoll.contexts[gpu];
    enum plimsoll_fit fit = here->alive > 0 ? FIT_RESERVED : plimsoll_fit(gpu, bytes, 0);
    if (fit == FIT_RESERVED && here->alive++ == 0)
        here->charged_bytes = bytes;
    pthread_mutex_unlock(&plimsoll.context_lock);
    return fit;
}

/* A retain makes the context or finds it made; only the driver knows, and only afterwards. So each retain
 * enters, the first one charged, and all but the one that made the context leave again: the number alive
 * stays one, whatever order threads come in. */
static bool enter_primary(int gpu, const char *function) {
    if (gpu < 0)
        return gpu == GPU_NONE || plimsoll_charge_gpu(gpu, 0, 0, function);
    uint64_t bytes = context_bytes(gpu);
    enum plimsoll_fit fit;
    unsigned turn = 0;
    do
        fit = try_to_enter((unsigned)gpu, bytes);
    while (fit == FIT_PAST_GRANT && plimsoll_wait_for_memory((unsigned)gpu, bytes, turn++, function));
    if (fit != FIT_RESERVED)
        plimsoll_count_denial(gpu, bytes, function);
    return fit == FIT_RESERVED;
}

static void leave_primary(int gpu) {
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

static CUresult retain(CUcontext *pctx, CUdevice dev, const char *function) {
    int gpu = plimsoll_gpu_of_device(dev);
    if (!enter_primary(gpu, function))
        return CUDA_ERROR_OUT_OF_MEMORY;
    plimsoll_depth++;
    CUresult result = leave_hook(REAL(cuDevicePrimaryCtxRetain)(pctx, dev));
    if (result == CUDA_SUCCESS && swap_primary(gpu, (uintptr_t)*pctx) == 0)
        note_made(gpu, *pctx);
    else
        leave_primary(gpu);
    return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    struct plimsoll_charge charge;
    if (!plimsoll_begin(&charge, "cuDevicePrimaryCtxRetain"))
        return charge.refusal ? charge.refusal : REAL(cuDevicePrimaryCtxRetain)(pctx, dev);
    return retain(pctx, dev, "cuDevicePrimaryCtxRetain");
}

static void end_primary(int gpu) {
    uint64_t context = swap_primary(gpu, 0);
    if (!context)
        return;
    plimsoll_holdings_sweep(&plimsoll.holdings, context, plimsoll_give_back);
    plimsoll_pools_look();
    plimsoll_graph_pool_look(gpu);
    leave_primary(gpu);
    note_ended(gpu);
}

/* A release ends the context only when it was the last one; the driver keeps that count. A reset always. */
static CUresult after_release(CUresult result, CUdevice device) {
    unsigned flags;
    int is_active = 1;
    if (!plimsoll_is_attached())
        return result;
    int gpu = plimsoll_gpu_of_device(device);
    if (result == CUDA_SUCCESS &&
        CALLED(cuDevicePrimaryCtxGetState)(device, &flags, &is_active) == CUDA_SUCCESS && !is_active)
        end_primary(gpu);
    else
        plimsoll_bursts_resume(plimsoll_primary_of_gpu(gpu), gpu);
    return result;
}

/* Whether a release is the last one is known only when it is too late: what is metered of the context is
 * resumed where it lives on. */
static void forget_primary(CUdevice device) {
    if (plimsoll_is_attached())
        plimsoll_bursts_forget(plimsoll_primary_of_gpu(plimsoll_gpu_of_device(device)));
}

#define RELEASE_PRIMARY(symbol, device)                                                                      \
    do {                                                                                                     \
        bool is_outer = plimsoll_depth++ == 0;                                                               \
        if (is_outer)                                                                                        \
            forget_primary(device);                                                                          \
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

/* --- green contexts: a part of the primary one, which they keep alive and which owns their memory ---------
 */

/* The context that a green one is used by; NULL where the driver does not say. */
static CUcontext context_of(CUgreenCtx green) {
    CUcontext context = NULL;
    return HAS(cuCtxFromGreenCtx) && CALLED(cuCtxFromGreenCtx)(&context, green) == CUDA_SUCCESS ? context
                                                                                                : NULL;
}

static void remember_green(CUgreenCtx green, CUcontext primary, int gpu) {
    CUcontext context = context_of(green);
    if (!context || context == primary || gpu < 0)
        return;
    plimsoll_remember((struct plimsoll_holding){.key = (uintptr_t)context,
                                                .with = (uintptr_t)primary,
                                                .references = 1,
                                                .gpu = (int16_t)gpu,
                                                .kind = HELD_CONTEXT});
    __atomic_store_n(&plimsoll.greens_made, true, __ATOMIC_RELAXED);
}

/* The primary context is retained around the call: so it is charged once and known, whoever made it. */
CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) {
    struct plimsoll_charge charge;
    CUcontext primary;
    if (!plimsoll_begin(&charge, "cuGreenCtxCreate"))
        return charge.refusal ? charge.refusal : REAL(cuGreenCtxCreate)(phCtx, desc, dev, flags);
    CUresult result = retain(&primary, dev, "cuGreenCtxCreate");
    if (result != CUDA_SUCCESS)
        return result;
    plimsoll_depth++;
    result = leave_hook(REAL(cuGreenCtxCreate)(phCtx, desc, dev, flags));
    if (result == CUDA_SUCCESS)
        remember_green(*phCtx, primary, plimsoll_gpu_of_device(dev));
    plimsoll_depth++;
    if (result != CUDA_SUCCESS)
        forget_primary(dev); /* this release may be the last one */
    after_release(leave_hook(REAL(cuDevicePrimaryCtxRelease_v2)(dev)), dev);
    return result;
}

static CUdevice device_of_gpu(int gpu) {
    int count = 0;
    CALLED(cuDeviceGetCount)(&count);
    for (CUdevice device = 0; device < count; device++)
        if (plimsoll_gpu_of_device(device) == gpu)
            return device;
    return -1;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
    struct plimsoll_holding known;
    CUcontext context = plimsoll_depth == 0 && plimsoll_is_attached() ? context_of(hCtx) : NULL;
    bool is_known =
        context && plimsoll_holdings_take(&plimsoll.holdings, HELD_CONTEXT, (uintptr_t)context, &known);
    plimsoll_depth++;
    /* It may be the last one that keeps its primary context alive. */
    plimsoll_bursts_forget(is_known ? known.with : (uintptr_t)context);
    CUresult result = leave_hook(REAL(cuGreenCtxDestroy)(hCtx));
    if (is_known && result != CUDA_SUCCESS)
        plimsoll_remember(known);
    return is_known ? after_release(result, device_of_gpu(known.gpu)) : result;
}
