/* The wrappers of functions that begin and end stream captures. They count captures, and change nothing else.
 *
 * A capture is remembered by its stream, because it ends with the stream too. A capture in a thread's own
 * default stream is the thread's: if the thread ends without ending it, the capture counts until its context
 * ends.
 */
#include <sched.h>

#include "driver/driver.h"
#include "memory/current.h"
#include "share/captures.h"

/* Captures count only in a process under Plimsoll, and only in the outermost of nested calls. */
static bool is_counting(void) {
    return plimsoll_depth == 0 && plimsoll_is_attached();
}

/* All threads name the per-thread default stream by one handle. The address of thread-local data identifies
 * its owner. */
static uint64_t key_of(CUstream stream) {
    return stream == CU_STREAM_PER_THREAD ? (uintptr_t)&plimsoll_depth : (uintptr_t)stream;
}

/* The stream is queried before the capture begins: afterwards the driver might refuse. */
static struct plimsoll_holding capture_in(CUstream stream) {
    uint64_t context;
    int gpu = plimsoll_gpu_of_stream(stream, &context);
    return (struct plimsoll_holding){
        .key = key_of(stream), .with = context, .gpu = (int16_t)gpu, .kind = HELD_CAPTURE};
}

/* Without memory to remember it, the capture counts for ever. */
static void remember(const struct plimsoll_holding *capture) {
    plimsoll_holdings_put(&plimsoll.holdings, *capture);
}

/* Removed before the driver's call, for the reason given at PLIMSOLL_FREE. */
static bool take(CUstream stream, struct plimsoll_holding *capture) {
    return plimsoll_captures_under_way() && is_counting() &&
           plimsoll_holdings_take(&plimsoll.holdings, HELD_CAPTURE, key_of(stream), capture);
}

/* --- beginning -------------------------------------------------------------------------------------------
 */

static void enter(void) {
    __atomic_fetch_add(&plimsoll.captures.under_way, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&plimsoll.captures.queries, __ATOMIC_SEQ_CST) > 0)
        sched_yield(); /* a query takes the driver a microsecond */
    plimsoll_depth++;
}

static CUresult leave(CUresult result, const struct plimsoll_holding *capture) {
    plimsoll_depth--;
    if (result == CUDA_SUCCESS)
        remember(capture);
    else
        plimsoll_capture_gone();
    return result;
}

#define BEGIN(symbol, stream, ...)                                                                           \
    do {                                                                                                     \
        if (!is_counting())                                                                                  \
            return REAL(symbol)(__VA_ARGS__);                                                                \
        struct plimsoll_holding capture = capture_in(stream);                                                \
        enter();                                                                                             \
        return leave(REAL(symbol)(__VA_ARGS__), &capture);                                                   \
    } while (0)

CUresult cuStreamBeginCapture(CUstream hStream) {
    BEGIN(cuStreamBeginCapture, hStream, hStream);
}

CUresult cuStreamBeginCapture_ptsz(CUstream hStream) {
    BEGIN(cuStreamBeginCapture_ptsz, plimsoll_per_thread(hStream), hStream);
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
    BEGIN(cuStreamBeginCapture_v2, hStream, hStream, mode);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
    BEGIN(cuStreamBeginCapture_v2_ptsz, plimsoll_per_thread(hStream), hStream, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
    BEGIN(cuStreamBeginCaptureToGraph, hStream, hStream, hGraph, dependencies, dependencyData,
          numDependencies, mode);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                          CUstreamCaptureMode mode) {
    BEGIN(cuStreamBeginCaptureToGraph_ptsz, plimsoll_per_thread(hStream), hStream, hGraph, dependencies,
          dependencyData, numDependencies, mode);
}

CUresult cuStreamBeginRecaptureToGraph(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
                                       CUgraphRecaptureCallback callbackFunc, void *userData) {
    BEGIN(cuStreamBeginRecaptureToGraph, hStream, hStream, mode, hGraph, callbackFunc, userData);
}

CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
                                            CUgraphRecaptureCallback callbackFunc, void *userData) {
    BEGIN(cuStreamBeginRecaptureToGraph_ptsz, plimsoll_per_thread(hStream), hStream, mode, hGraph,
          callbackFunc, userData);
}

/* A capture into a command list of a graphics API: a mode of the stream with the same prohibitions. */
CUresult cuStreamBeginCaptureToCig(CUstream hStream, CUstreamCigCaptureParams *streamCigCaptureParams) {
    BEGIN(cuStreamBeginCaptureToCig, hStream, hStream, streamCigCaptureParams);
}

CUresult cuStreamBeginCaptureToCig_ptsz(CUstream hStream, CUstreamCigCaptureParams *streamCigCaptureParams) {
    BEGIN(cuStreamBeginCaptureToCig_ptsz, plimsoll_per_thread(hStream), hStream, streamCigCaptureParams);
}

/* --- ending ----------------------------------------------------------------------------------------------
 */

/* A broken capture ends with an error. A capture that another thread must end goes on. */
static CUresult ended(CUresult result, CUstream stream, const struct plimsoll_holding *capture) {
    plimsoll_depth--;
    if (result == CUDA_SUCCESS || !plimsoll_is_capturing(stream))
        plimsoll_capture_gone();
    else
        remember(capture);
    return result;
}

#define END(symbol, stream, ...)                                                                             \
    do {                                                                                                     \
        struct plimsoll_holding capture;                                                                     \
        if (!take(stream, &capture))                                                                         \
            return REAL(symbol)(__VA_ARGS__);                                                                \
        plimsoll_depth++;                                                                                    \
        return ended(REAL(symbol)(__VA_ARGS__), stream, &capture);                                           \
    } while (0)

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
    END(cuStreamEndCapture, hStream, hStream, phGraph);
}

CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph) {
    END(cuStreamEndCapture_ptsz, plimsoll_per_thread(hStream), hStream, phGraph);
}

CUresult cuStreamEndCaptureToCig(CUstream hStream) {
    END(cuStreamEndCaptureToCig, hStream, hStream);
}

CUresult cuStreamEndCaptureToCig_ptsz(CUstream hStream) {
    END(cuStreamEndCaptureToCig_ptsz, plimsoll_per_thread(hStream), hStream);
}

/* A stream that captures may be destroyed, and its capture with it. */
static CUresult destroyed(CUresult result, const struct plimsoll_holding *capture) {
    plimsoll_depth--;
    if (result == CUDA_SUCCESS)
        plimsoll_capture_gone();
    else
        remember(capture);
    return result;
}

#define DESTROY(symbol, stream)                                                                              \
    do {                                                                                                     \
        struct plimsoll_holding capture;                                                                     \
        if (!take(stream, &capture))                                                                         \
            return REAL(symbol)(stream);                                                                     \
        plimsoll_depth++;                                                                                    \
        return destroyed(REAL(symbol)(stream), &capture);                                                    \
    } while (0)

CUresult cuStreamDestroy(CUstream hStream) {
    DESTROY(cuStreamDestroy, hStream);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
    DESTROY(cuStreamDestroy_v2, hStream);
}
