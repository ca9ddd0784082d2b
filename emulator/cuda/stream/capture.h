/* Stream capture: what a stream is handed becomes nodes of a graph instead of running. */
#ifndef PLIMSOLL_EMULATOR_CAPTURE_H
#define PLIMSOLL_EMULATOR_CAPTURE_H

#include "cuda/stream/stream.h"

/* A capture under way. */
struct capture {
    struct capture *next; /* of all under way */
    CUgraph graph;
    bool graph_is_given; /* by cuStreamBeginCaptureToGraph */
    CUstream origin;
    CUstreamCaptureMode mode;
    pthread_t thread; /* that began it */
    uint64_t id;
    bool invalid;
};

/* The calling thread's own wish; cuThreadExchangeStreamCaptureMode. */
extern _Thread_local CUstreamCaptureMode capture_thread_mode;

/* May this thread make calls that a capture cannot record (allocations, synchronisation)? False also
 * invalidates the captures that forbid it. */
bool capture_permits(void);
void capture_invalidate(struct capture *capture);
/* Would work on this stream implicitly depend on a stream that captures? (The legacy default stream and
 * blocking ones.) Invalidates that capture. */
bool capture_meets_legacy(CUstream stream);
/* Enters the driver with a current context, as context_enter does; no stream capture may be under way that
 * this call would break (memory, synchronisation). */
CUresult capture_enter(CUcontext *context);
/* The capture a stream takes part in; NULL = none. */
struct capture *capture_of(CUstream stream);
bool capture_in_context(CUcontext context);
/* Is the capture of this number under way? Invalidates it. */
bool capture_is_under_way(uint64_t id);
/* The capture of this number, if it is under way; NULL = none. */
struct capture *capture_find(uint64_t id);
void capture_enlist(struct capture *capture);
/* Takes a capture out of the list of those under way. */
void capture_delist(struct capture *capture);

#endif
