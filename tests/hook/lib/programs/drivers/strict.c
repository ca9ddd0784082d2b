/* A driver that counts what the emulator puts up with and NVIDIA's does not, or not for nothing: contexts and
 * events that are used though they are gone; a green context that is pushed beside the thread that has it,
 * which is refused; a thread's own default stream that is asked after, which makes it; and events that raise
 * an interrupt each time. All else comes from the emulator, which it is linked to under another name.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <string.h>

#include "emulated.h"

#define GREENS 64

static CUcontext greens[GREENS];
static unsigned green_count;
static struct {
    unsigned refused, asked_per_thread, blocking_events;
} counts;

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
    CUresult result = EMULATED(cuCtxFromGreenCtx, context, green);
    if (result == CUDA_SUCCESS)
        greens[green_count++ % GREENS] = *context;
    return result;
}

static CUresult judged(CUresult result) {
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_HANDLE ||
        result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        __atomic_fetch_add(&counts.refused, 1, __ATOMIC_RELAXED);
    return result;
}

static int is_anothers(CUcontext context) {
    CUcontext mine;
    if (cuCtxGetCurrent(&mine) == CUDA_SUCCESS && mine == context)
        return 0;
    for (unsigned i = 0; i < green_count && i < GREENS; i++)
        if (greens[i] == context)
            return 1;
    return 0;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    return judged(is_anothers(context) ? CUDA_ERROR_INVALID_CONTEXT : EMULATED(cuCtxPushCurrent_v2, context));
}

CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
    return judged(EMULATED(cuCtxRecordEvent, context, event));
}

CUresult cuEventQuery(CUevent event) {
    return judged(EMULATED(cuEventQuery, event));
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    if (stream == CU_STREAM_PER_THREAD)
        __atomic_fetch_add(&counts.asked_per_thread, 1, __ATOMIC_RELAXED);
    return EMULATED(cuStreamIsCapturing, stream, status);
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    if (flags & CU_EVENT_BLOCKING_SYNC)
        __atomic_fetch_add(&counts.blocking_events, 1, __ATOMIC_RELAXED);
    return judged(EMULATED(cuEventCreate, event, flags));
}

void strictCounts(unsigned counted[3]);
void strictCounts(unsigned counted[3]) {
    memcpy(counted, &counts, sizeof(counts));
}
