/* The wrappers of what waits for work, or asks whether it is done: where a burst may end, and where the
 * driver gives back what pools keep too much of. Copies that the host waits for are in copies.c and boxes.c.
 */
#include "driver/gpus.h"
#include "hooks/gated.h"
#include "memory/pools/reserved.h"

static bool is_outer(void) {
    return plimsoll_depth == 0 && plimsoll_is_attached();
}

static CUresult look_at_pools(CUresult result) {
    if (is_outer())
        plimsoll_pools_look();
    return result;
}

#define SYNCS(symbol, before, parameters, arguments)                                                         \
    CUresult symbol parameters {                                                                             \
        bool is_open = plimsoll_is_gate_open();                                                              \
        if (!is_open)                                                                                        \
            before;                                                                                          \
        CUresult result = REAL(symbol) arguments;                                                            \
        if (!is_open)                                                                                        \
            plimsoll_after_sync();                                                                           \
        return look_at_pools(result);                                                                        \
    }

SYNCS(cuStreamSynchronize, plimsoll_before_sync(hStream), (CUstream hStream), (hStream))
SYNCS(cuStreamSynchronize_ptsz, plimsoll_before_sync(plimsoll_per_thread(hStream)), (CUstream hStream),
      (hStream))
SYNCS(cuCtxSynchronize, plimsoll_before_sync_context(), (void), ())
SYNCS(cuCtxSynchronize_v2, plimsoll_before_sync_context(), (CUcontext ctx), (ctx))
/* Whichever stream the event was recorded in: what is of this context may end with it. */
SYNCS(cuEventSynchronize, plimsoll_before_sync_context(), (CUevent hEvent), (hEvent))

/* Programs that poll wait in their own way. */
#define QUERIES(symbol, before, parameters, arguments)                                                       \
    PLIMSOLL_GATED(symbol, parameters, arguments) {                                                          \
        before;                                                                                              \
        CUresult result = REAL(symbol) arguments;                                                            \
        if (result == CUDA_SUCCESS)                                                                          \
            plimsoll_after_sync();                                                                           \
        return result;                                                                                       \
    }

QUERIES(cuStreamQuery, plimsoll_before_sync(hStream), (CUstream hStream), (hStream))
QUERIES(cuStreamQuery_ptsz, plimsoll_before_sync(plimsoll_per_thread(hStream)), (CUstream hStream), (hStream))
/* Asked of events long past, over and over, by allocators that reuse memory: nothing is recorded ahead of it.
 */
QUERIES(cuEventQuery, (void)0, (CUevent hEvent), (hEvent))
