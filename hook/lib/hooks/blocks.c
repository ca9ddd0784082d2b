/* The wrappers of functions that put into a stream something that executes nothing and blocks the work behind
 * it: host functions, callbacks, and waits for values or events. They pass. Only the stream's segment ends
 * before them (share/work/meters.h). */
#include "driver/gpus.h"
#include "share/launch.h"
#include "share/gate.h"

/* This acts behind an open gate too: what is in a stream when metering begins was put there before. */
#define PLIMSOLL_BLOCKS(symbol, stream, parameters, arguments)                                               \
    PLIMSOLL_PASSING(symbol, !plimsoll_has_gate(), parameters, arguments) {                                  \
        plimsoll_before_block(stream);                                                                       \
        return REAL(symbol) arguments;                                                                       \
    }

#define CALLS_HOST(symbol, stream)                                                                           \
    PLIMSOLL_BLOCKS(symbol, stream, (CUstream hStream, CUhostFn fn, void *userData), (hStream, fn, userData))

CALLS_HOST(cuLaunchHostFunc, hStream)
CALLS_HOST(cuLaunchHostFunc_ptsz, plimsoll_per_thread(hStream))

#define CALLS_HOST_IN_MODE(symbol, stream)                                                                   \
    PLIMSOLL_BLOCKS(symbol, stream, (CUstream hStream, CUhostFn fn, void *userData, unsigned int syncMode),  \
                    (hStream, fn, userData, syncMode))

CALLS_HOST_IN_MODE(cuLaunchHostFunc_v2, hStream)
CALLS_HOST_IN_MODE(cuLaunchHostFunc_v2_ptsz, plimsoll_per_thread(hStream))

#define CALLS_BACK(symbol, stream)                                                                           \
    PLIMSOLL_BLOCKS(symbol, stream,                                                                          \
                    (CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags),       \
                    (hStream, callback, userData, flags))

CALLS_BACK(cuStreamAddCallback, hStream)
CALLS_BACK(cuStreamAddCallback_ptsz, plimsoll_per_thread(hStream))

#define WAITS_FOR_EVENT(symbol, stream)                                                                      \
    PLIMSOLL_BLOCKS(symbol, stream, (CUstream hStream, CUevent hEvent, unsigned int Flags),                  \
                    (hStream, hEvent, Flags))

WAITS_FOR_EVENT(cuStreamWaitEvent, hStream)
WAITS_FOR_EVENT(cuStreamWaitEvent_ptsz, plimsoll_per_thread(hStream))

#define WAITS_FOR_VALUE(symbol, stream, type)                                                                \
    PLIMSOLL_BLOCKS(symbol, stream, (CUstream hStream, CUdeviceptr addr, type value, unsigned int flags),    \
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
