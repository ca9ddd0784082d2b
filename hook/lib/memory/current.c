/* Contexts that come and go without a hooked call.
 *
 * Programs reach the driver through exported functions, which are hooked. But NVIDIA's runtime also uses
 * private tables (cuGetExportTable), through which it may retain, release and reset primary contexts by
 * itself. Such a context is noticed at the first allocation or launch in it. The end of such a context is
 * noticed when another context turns up, and before a request is refused, because the holdings of an ended
 * context must not count then.
 */
#include "memory/current.h"

#include "driver/driver.h"
#include "driver/gpus.h"
#include "memory/ledger.h"
#include "memory/primaries.h"
#include "memory/release.h"
#include "share/work.h"

static uint64_t id_of(CUcontext context) {
    unsigned long long id = 0;
    bool is_known = context && HAS(cuCtxGetId) && CALLED(cuCtxGetId)(context, &id) == CUDA_SUCCESS;
    return is_known ? id : 0;
}

/* The second version came with CUDA 11.0. */
static void release(CUdevice device) {
    if (plimsoll.driver[HOOK_cuDevicePrimaryCtxRelease_v2])
        REAL(cuDevicePrimaryCtxRelease_v2)(device);
    else
        REAL(cuDevicePrimaryCtxRelease)(device);
}

/* Only a retain gives the handle. This function retains and releases only while the context is active;
 * otherwise the retain would make one. */
static struct plimsoll_primary ask_driver(CUdevice device) {
    unsigned flags;
    int is_active = 0;
    CUcontext context = NULL;
    if (CALLED(cuDevicePrimaryCtxGetState)(device, &flags, &is_active) != CUDA_SUCCESS || !is_active ||
        REAL(cuDevicePrimaryCtxRetain)(&context, device) != CUDA_SUCCESS)
        return PLIMSOLL_NO_PRIMARY;
    struct plimsoll_primary now = {(uintptr_t)context, id_of(context)};
    release(device);
    return now;
}

static struct plimsoll_primary primary_of(CUdevice device) {
    plimsoll_depth++;
    struct plimsoll_primary now = ask_driver(device);
    plimsoll_depth--;
    return now;
}

/* An unlisted GPU has nothing to remember. The known context may have been replaced without a hooked call. */
void plimsoll_primary_entered(int gpu, CUcontext context) {
    struct plimsoll_primary now = {(uintptr_t)context, id_of(context)};
    bool is_new = context && (gpu < 0 || plimsoll_primary_change(gpu, PLIMSOLL_NO_PRIMARY, now));
    if (is_new) {
        plimsoll_context_made(gpu, plimsoll_primary_charge(gpu));
        return;
    }
    plimsoll_primary_leave(gpu);
    if (context && !plimsoll_is_same(plimsoll_primary_known(gpu), now))
        plimsoll_contexts_check(gpu);
}

static void adopt_primary(int gpu, struct plimsoll_primary now) {
    plimsoll_primary_enter_unjudged(gpu);
    plimsoll_primary_entered(gpu, (CUcontext)(uintptr_t)now.context);
}

/* Two threads may meet the context at once: under the lock the second finds it remembered. */
static bool remember_created(int gpu, uint64_t context, uint64_t bytes) {
    struct plimsoll_holding known,
        made = {.key = context, .bytes = bytes, .references = 1, .gpu = (int16_t)gpu, .kind = HELD_CONTEXT};
    pthread_mutex_lock(&plimsoll.context_lock);
    bool is_new = !plimsoll_holdings_get(&plimsoll.holdings, HELD_CONTEXT, context, &known);
    if (is_new) {
        plimsoll_ledger_add(plimsoll.counts, plimsoll.slot, (unsigned)gpu, bytes);
        plimsoll_remember(made);
    }
    pthread_mutex_unlock(&plimsoll.context_lock);
    return is_new;
}

static void adopt_created(int gpu, uint64_t context) {
    uint64_t bytes = plimsoll_context_bytes(gpu);
    if (remember_created(gpu, context, bytes))
        plimsoll_context_made(gpu, bytes);
}

void plimsoll_context_seen(uint64_t context) {
    CUdevice device;
    if (context == 0 || !plimsoll_is_attached() || plimsoll_is_known_context(context) ||
        !plimsoll_device_of_context(context, &device))
        return;
    int gpu = plimsoll_gpu_of_device(device);
    if (gpu < 0)
        return; /* a GPU that is not in `limits`: nothing is counted there */
    plimsoll_contexts_check(gpu);
    struct plimsoll_primary now = primary_of(device);
    if (now.context == context)
        adopt_primary(gpu, now);
    else if (!plimsoll_is_former_primary(gpu, context))
        adopt_created(gpu, context);
}

/* Whether the driver still knows an address as it was allocated. The check is less strict for an address in a
 * pool, because a driver may name the beginning of the pool's piece. */
static bool is_alive(const struct plimsoll_holding *holding) {
    CUdeviceptr start = 0;
    CUresult result = CALLED(cuPointerGetAttribute)(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                                    (CUdeviceptr)holding->key);
    return result == CUDA_SUCCESS && (holding->pool || start == holding->key);
}

/* A holding whose `with` is inverted dies with no context. So a sweep in progress does not meet it again. */
static void set_aside_if_alive(const struct plimsoll_holding *holding) {
    struct plimsoll_holding kept = *holding;
    kept.with = ~kept.with;
    if (holding->kind == HELD_MEMORY && is_alive(holding))
        plimsoll_remember(kept);
    else
        plimsoll_give_back(holding);
}

static void bring_back(const struct plimsoll_holding *holding) {
    struct plimsoll_holding kept = *holding;
    kept.with = ~kept.with;
    plimsoll_remember(kept);
}

/* The successor of an ended context may have the same handle, and memory may be allocated in it before the
 * change is noticed. Only memory can be: the hooks call plimsoll_contexts_check before they make anything
 * else that dies with a context. */
static bool drop_all_but_living(int gpu, struct plimsoll_primary known) {
    bool is_dropped = plimsoll_primary_drop(gpu, known, set_aside_if_alive);
    plimsoll_holdings_sweep(&plimsoll.holdings, ~known.context, bring_back);
    return is_dropped;
}

bool plimsoll_contexts_check(int gpu) {
    struct plimsoll_primary known = plimsoll_primary_known(gpu);
    CUdevice device = known.context ? plimsoll_device_of_gpu(gpu) : -1;
    if (device < 0)
        return false;
    struct plimsoll_primary now = primary_of(device);
    if (plimsoll_is_same(known, now))
        return false;
    plimsoll_work_context_lost(known.context);
    bool is_dropped = now.context == known.context ? drop_all_but_living(gpu, known)
                                                   : plimsoll_primary_drop(gpu, known, plimsoll_give_back);
    if (is_dropped && now.context)
        adopt_primary(gpu, now);
    return is_dropped;
}

/* --- the GPU of a call --------------------------------------------------------------------------------
 */

int plimsoll_gpu_of_current_context(uint64_t context) {
    CUdevice device;
    int gpu = context ? plimsoll_gpu_of_known_context(context) : GPU_NONE;
    if (gpu != GPU_UNLISTED)
        return gpu;
    if (CALLED(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
        return GPU_NONE;
    gpu = plimsoll_gpu_of_device(device);
    if (gpu >= 0)
        plimsoll_context_seen(context);
    return gpu;
}

int plimsoll_gpu_of_current(void) {
    return plimsoll_gpu_of_current_context(plimsoll_current_context());
}

static int gpu_of_context(CUcontext context) {
    CUcontext popped;
    int gpu = plimsoll_gpu_of_known_context((uintptr_t)context);
    if (gpu != GPU_UNLISTED || CALLED(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS)
        return gpu;
    gpu = plimsoll_gpu_of_current();
    CALLED(cuCtxPopCurrent_v2)(&popped);
    return gpu;
}

/* Only a stream made by the program is queried. A query about a default stream during a capture would break
 * that capture, and the default streams belong to the current context anyway. */
int plimsoll_gpu_of_stream(CUstream stream, uint64_t *context) {
    bool is_default = stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    CUcontext owner;
    *context = plimsoll_current_context();
    if (is_default || !HAS(cuStreamGetCtx) || *context == 0 ||
        CALLED(cuStreamGetCtx)(stream, &owner) != CUDA_SUCCESS || plimsoll_owner_of(owner) == *context)
        return plimsoll_gpu_of_current_context(*context);
    *context = plimsoll_owner_of(owner);
    return gpu_of_context(owner);
}
