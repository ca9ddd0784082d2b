/* The wrappers of functions that wait for work, query whether it is done, or block a stream. A burst may end
 * there, and the driver gives back what pools no longer need. Copies that the host waits for are in copies.c.
 */
#include "driver/gpus.h"
#include "memory/pools/pools.h"
#include "share/gate.h"
#include "share/launch.h"

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

/* --- blocks ----------------------------------------------------------------------------------------------
 *
 * Functions that put into a stream something that executes nothing and blocks the work behind
 * it: host functions, callbacks, and waits for values or events. They pass. Only the stream's segment ends
 * before them (share/work/meters.h).
 */

/* This acts behind an open gate too: what is in a stream when metering begins was put there before. */
#define BLOCKS(symbol, stream, parameters, arguments)                                                        \
    PLIMSOLL_PASSING(symbol, !plimsoll_has_gate(), parameters, arguments) {                                  \
        plimsoll_before_block(stream);                                                                       \
        return REAL(symbol) arguments;                                                                       \
    }

#define CALLS_HOST(symbol, stream)                                                                           \
    BLOCKS(symbol, stream, (CUstream hStream, CUhostFn fn, void *userData), (hStream, fn, userData))

CALLS_HOST(cuLaunchHostFunc, hStream)
CALLS_HOST(cuLaunchHostFunc_ptsz, plimsoll_per_thread(hStream))

#define CALLS_HOST_IN_MODE(symbol, stream)                                                                   \
    BLOCKS(symbol, stream, (CUstream hStream, CUhostFn fn, void *userData, unsigned int syncMode),           \
           (hStream, fn, userData, syncMode))

CALLS_HOST_IN_MODE(cuLaunchHostFunc_v2, hStream)
CALLS_HOST_IN_MODE(cuLaunchHostFunc_v2_ptsz, plimsoll_per_thread(hStream))

#define CALLS_BACK(symbol, stream)                                                                           \
    BLOCKS(symbol, stream,                                                                                   \
           (CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags),                \
           (hStream, callback, userData, flags))

CALLS_BACK(cuStreamAddCallback, hStream)
CALLS_BACK(cuStreamAddCallback_ptsz, plimsoll_per_thread(hStream))

#define WAITS_FOR_EVENT(symbol, stream)                                                                      \
    BLOCKS(symbol, stream, (CUstream hStream, CUevent hEvent, unsigned int Flags), (hStream, hEvent, Flags))

WAITS_FOR_EVENT(cuStreamWaitEvent, hStream)
WAITS_FOR_EVENT(cuStreamWaitEvent_ptsz, plimsoll_per_thread(hStream))

#define WAITS_FOR_VALUE(symbol, stream, type)                                                                \
    BLOCKS(symbol, stream, (CUstream hStream, CUdeviceptr addr, type value, unsigned int flags),             \
           (hStream, addr, value, flags))

WAITS_FOR_VALUE(cuStreamWaitValue32, hStream, cuuint32_t)
WAITS_FOR_VALUE(cuStreamWaitValue32_ptsz, plimsoll_per_thread(hStream), cuuint32_t)
WAITS_FOR_VALUE(cuStreamWaitValue32_v2, hStream, cuuint32_t)
WAITS_FOR_VALUE(cuStreamWaitValue32_v2_ptsz, plimsoll_per_thread(hStream), cuuint32_t)
WAITS_FOR_VALUE(cuStreamWaitValue64, hStream, cuuint64_t)
WAITS_FOR_VALUE(cuStreamWaitValue64_ptsz, plimsoll_per_thread(hStream), cuuint64_t)
WAITS_FOR_VALUE(cuStreamWaitValue64_v2, hStream, cuuint64_t)
WAITS_FOR_VALUE(cuStreamWaitValue64_v2_ptsz, plimsoll_per_thread(hStream), cuuint64_t)

/* Whether a batch may wait: some operations only write. A batch without a list is for the driver to
 * refuse. */
static bool may_wait(const CUstreamBatchMemOpParams *operations, unsigned int count) {
    for (unsigned int i = 0; operations && i < count; i++)
        if (operations[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
            operations[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
            return true;
    return false;
}

#define DOES_BATCH(symbol, stream)                                                                           \
    PLIMSOLL_PASSING(                                                                                        \
        symbol, !plimsoll_has_gate(),                                                                        \
        (CUstream hStream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags),    \
        (hStream, count, paramArray, flags)) {                                                               \
        if (may_wait(paramArray, count))                                                                     \
            plimsoll_before_block(stream);                                                                   \
        return REAL(symbol)(hStream, count, paramArray, flags);                                              \
    }

DOES_BATCH(cuStreamBatchMemOp, hStream)
DOES_BATCH(cuStreamBatchMemOp_ptsz, plimsoll_per_thread(hStream))
DOES_BATCH(cuStreamBatchMemOp_v2, hStream)
DOES_BATCH(cuStreamBatchMemOp_v2_ptsz, plimsoll_per_thread(hStream))
