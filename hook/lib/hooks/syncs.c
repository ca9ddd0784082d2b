/* The wrappers of functions that wait for work, or query whether it is done. A burst may end there, and the
 * driver gives back what pools no longer need. Copies that the host waits for are in copies.c and boxes.c. */
#include "driver/gpus.h"
#include "share/launch.h"
#include "memory/pools/reserved.h"

static bool is_outer(void) {
    return plimsoll_depth == 0 && plimsoll_is_attached();
}

static CUresult update_pools(CUresult result) {
    if (is_outer())
        plimsoll_pools_update();
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
        return update_pools(result);                                                                         \
    }

SYNCS(cuStreamSynchronize, plimsoll_before_sync(hStream), (CUstream hStream), (hStream))
SYNCS(cuStreamSynchronize_ptsz, plimsoll_before_sync(plimsoll_per_thread(hStream)), (CUstream hStream),
      (hStream))
SYNCS(cuCtxSynchronize, plimsoll_before_sync_context(), (void), ())
SYNCS(cuCtxSynchronize_v2, plimsoll_before_sync_context(), (CUcontext ctx), (ctx))
/* In whichever stream the event was recorded, work of this context may end with it. */
SYNCS(cuEventSynchronize, plimsoll_before_sync_context(), (CUevent hEvent), (hEvent))

/* For programs that poll instead of waiting. */
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
/* Allocators that reuse memory repeat this query for events long past. So nothing is recorded before it. */
QUERIES(cuEventQuery, (void)0, (CUevent hEvent), (hEvent))
