/* Contexts take GPU memory of their own, which no allocation shows: hundreds of MiB on a real card. Once the
 * cost of a new context was measured, it stands in `limits`, and is charged for as long as the context lives.
 * A context made before the measurement is not charged later: the call waits until the broker has measured
 * this process, and NVML's figure makes the context part of `excess_bytes`. */
#include "driver/driver.h"
#include "driver/gpus.h"
#include "driver/routing.h"
#include "memory/charge.h"
#include "memory/current.h"
#include "memory/pools/pools.h"
#include "memory/primaries.h"
#include "memory/release.h"
#include "share/work.h"

CUresult cuInit(unsigned int Flags) {
    struct plimsoll_charge charge;
    bool is_limited = plimsoll_begin(&charge, "cuInit") && !plimsoll_is_whole();
    if (is_limited && !plimsoll_is_memory_routed())
        charge.refusal = CUDA_ERROR_SYSTEM_NOT_READY;
    return charge.refusal ? charge.refusal : REAL(cuInit)(Flags);
}

/* --- created contexts ------------------------------------------------------------------------------------
 */

/* A GPU that is not in `limits` (the container owns whole ones) has nothing to remember. */
static CUresult after_create(struct plimsoll_charge *charge, CUresult result, const CUcontext *context) {
    int gpu = charge->gpu = charge->gpu < 0 ? GPU_NONE : charge->gpu;
    plimsoll_commit(charge, result, HELD_CONTEXT, result == CUDA_SUCCESS ? (uintptr_t)*context : 0, 0);
    if (result == CUDA_SUCCESS)
        plimsoll_context_made(gpu, charge->bytes);
    return result;
}

#define CREATE_CONTEXT(symbol, context, device, ...)                                                         \
    do {                                                                                                     \
        struct plimsoll_charge charge;                                                                       \
        if (!plimsoll_begin(&charge, #symbol))                                                               \
            return charge.refusal ? charge.refusal : REAL(symbol)(__VA_ARGS__);                              \
        int gpu = plimsoll_gpu_of_device(device);                                                            \
        if (plimsoll_reserve(&charge, gpu, plimsoll_context_bytes(gpu)))                                     \
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

/* Everything that dies with a context leaves the books after the driver ended the context. */
static void forget(CUcontext context) {
    plimsoll_holdings_sweep(&plimsoll.holdings, (uintptr_t)context, plimsoll_give_back);
    plimsoll_pools_update();
}

static CUresult after_destroy(CUresult result, CUcontext context) {
    struct plimsoll_holding known;
    if (result != CUDA_SUCCESS || context == NULL)
        return result;
    forget(context);
    if (plimsoll_holdings_take(&plimsoll.holdings, HELD_CONTEXT, (uintptr_t)context, &known)) {
        plimsoll_give_back(&known);
        plimsoll_context_ended(known.gpu);
    }
    return result;
}

#define DESTROY_CONTEXT(symbol, context)                                                                     \
    do {                                                                                                     \
        bool is_outer = plimsoll_depth++ == 0;                                                               \
        int gpu = is_outer ? plimsoll_work_context_ends((uintptr_t)(context)) : -1;                          \
        CUresult result = plimsoll_leave_hook(REAL(symbol)(context));                                        \
        plimsoll_work_context_ended(gpu);                                                                    \
        return is_outer ? after_destroy(result, context) : result;                                           \
    } while (0)

CUresult cuCtxDestroy(CUcontext ctx) {
    DESTROY_CONTEXT(cuCtxDestroy, ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    DESTROY_CONTEXT(cuCtxDestroy_v2, ctx);
}

/* References to created contexts, from before cuCtxPushCurrent: the last detach destroys the context. */
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
    int gpu = is_outer ? plimsoll_work_context_ends((uintptr_t)ctx) : -1;
    CUresult result = plimsoll_leave_hook(REAL(cuCtxDetach)(ctx));
    plimsoll_work_context_ended(gpu);
    if (result == CUDA_SUCCESS && is_outer &&
        plimsoll_holdings_refer(&plimsoll.holdings, HELD_CONTEXT, (uintptr_t)ctx, -1, &known)) {
        forget(ctx);
        plimsoll_give_back(&known);
        plimsoll_context_ended(known.gpu);
    }
    return result;
}

/* --- primary contexts: one per device, counted by the driver ---------------------------------------------
 */

static CUresult retain(CUcontext *pctx, CUdevice dev, const char *function) {
    int gpu = plimsoll_gpu_of_device(dev);
    if (!plimsoll_primary_enter(gpu, function))
        return CUDA_ERROR_OUT_OF_MEMORY;
    plimsoll_depth++;
    CUresult result = plimsoll_leave_hook(REAL(cuDevicePrimaryCtxRetain)(pctx, dev));
    plimsoll_primary_entered(gpu, result == CUDA_SUCCESS ? *pctx : NULL);
    if (result == CUDA_SUCCESS)
        plimsoll_primary_retained(gpu);
    return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    struct plimsoll_charge charge;
    if (!plimsoll_begin(&charge, "cuDevicePrimaryCtxRetain"))
        return charge.refusal ? charge.refusal : REAL(cuDevicePrimaryCtxRetain)(pctx, dev);
    return retain(pctx, dev, "cuDevicePrimaryCtxRetain");
}

/* A release ends the context only when it was the last one, by the driver's count. A reset always ends it.
 * If its bursts were forgotten, and it lives on, metering resumes. */
static CUresult after_release(CUresult result, CUdevice device, bool is_forgotten) {
    unsigned flags;
    int is_active = 1;
    if (!plimsoll_is_attached())
        return result;
    int gpu = plimsoll_gpu_of_device(device);
    if (result == CUDA_SUCCESS &&
        CALLED(cuDevicePrimaryCtxGetState)(device, &flags, &is_active) == CUDA_SUCCESS && !is_active)
        plimsoll_primary_end(gpu);
    else if (is_forgotten)
        plimsoll_work_context_stays(plimsoll_primary_of_gpu(gpu), gpu);
    return result;
}

static bool outlives_release(CUdevice device) {
    return plimsoll_is_attached() && plimsoll_primary_outlives_release(plimsoll_gpu_of_device(device));
}

static int forget_primary(CUdevice device) {
    if (!plimsoll_is_attached())
        return -1;
    return plimsoll_work_context_ends(plimsoll_primary_of_gpu(plimsoll_gpu_of_device(device)));
}

#define END_PRIMARY(symbol, device, outlives)                                                                \
    do {                                                                                                     \
        bool is_outer = plimsoll_depth++ == 0, lives_on = is_outer && (outlives);                            \
        int gpu = is_outer && !lives_on ? forget_primary(device) : -1;                                       \
        CUresult result = plimsoll_leave_hook(REAL(symbol)(device));                                         \
        plimsoll_work_context_ended(gpu);                                                                    \
        return is_outer ? after_release(result, device, !lives_on) : result;                                 \
    } while (0)

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
    END_PRIMARY(cuDevicePrimaryCtxRelease, dev, outlives_release(dev));
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    END_PRIMARY(cuDevicePrimaryCtxRelease_v2, dev, outlives_release(dev));
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
    END_PRIMARY(cuDevicePrimaryCtxReset, dev, false);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    END_PRIMARY(cuDevicePrimaryCtxReset_v2, dev, false);
}

/* --- green contexts: a part of the primary one, which they keep alive and which owns their memory ---------
 */

/* The context by which a green context is used; NULL where the driver does not say. */
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

/* The primary context is retained around the call, so that it is charged once and known, whoever made it. */
CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) {
    struct plimsoll_charge charge;
    CUcontext primary;
    if (!plimsoll_begin(&charge, "cuGreenCtxCreate"))
        return charge.refusal ? charge.refusal : REAL(cuGreenCtxCreate)(phCtx, desc, dev, flags);
    CUresult result = retain(&primary, dev, "cuGreenCtxCreate");
    if (result != CUDA_SUCCESS)
        return result;
    plimsoll_depth++;
    result = plimsoll_leave_hook(REAL(cuGreenCtxCreate)(phCtx, desc, dev, flags));
    if (result == CUDA_SUCCESS)
        remember_green(*phCtx, primary, plimsoll_gpu_of_device(dev));
    plimsoll_depth++;
    bool lives_on = outlives_release(dev) || result == CUDA_SUCCESS; /* else this release may be the last */
    int gpu = lives_on ? -1 : forget_primary(dev);
    CUresult released = plimsoll_leave_hook(REAL(cuDevicePrimaryCtxRelease_v2)(dev));
    plimsoll_work_context_ended(gpu);
    after_release(released, dev, !lives_on);
    return result;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
    struct plimsoll_holding known;
    CUcontext context = plimsoll_depth == 0 && plimsoll_is_attached() ? context_of(hCtx) : NULL;
    bool is_known =
        context && plimsoll_holdings_take(&plimsoll.holdings, HELD_CONTEXT, (uintptr_t)context, &known);
    plimsoll_depth++;
    /* the green context may be the last that keeps its primary context alive */
    int gpu = plimsoll_work_context_ends(is_known ? known.with : (uintptr_t)context);
    CUresult result = plimsoll_leave_hook(REAL(cuGreenCtxDestroy)(hCtx));
    plimsoll_work_context_ended(gpu);
    if (is_known && result != CUDA_SUCCESS)
        plimsoll_remember(known);
    return is_known ? after_release(result, plimsoll_device_of_gpu(known.gpu), true) : result;
}
