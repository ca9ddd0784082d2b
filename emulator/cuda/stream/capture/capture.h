/* Stream capture: work submitted to the stream becomes nodes of a graph instead of running. */
#ifndef PLIMSOLL_EMULATOR_CAPTURE_H
#define PLIMSOLL_EMULATOR_CAPTURE_H

#include "cuda/stream/stream.h"

/* A capture under way. */
struct capture {
    struct capture *next; /* in the list of captures under way */
    CUgraph graph;
    bool graph_is_given; /* the program passed the graph to cuStreamBeginCaptureToGraph */
    CUstream origin;
    CUstreamCaptureMode mode;
    pthread_t thread; /* the thread that began the capture */
    uint64_t id;
    bool invalid;
};

/* The calling thread's mode, set by cuThreadExchangeStreamCaptureMode. */
extern _Thread_local CUstreamCaptureMode capture_thread_mode;

/* True if this thread may make calls that a capture cannot record (allocations, synchronisation). False
 * also invalidates the captures that forbid such calls. */
bool capture_permits(void);
void capture_invalidate(struct capture *capture);
/* True if work on this stream would implicitly depend on a stream that captures (the legacy default stream
 * on blocking ones). Invalidates that capture. */
bool capture_meets_legacy(CUstream stream);
/* Enters the driver with a current context, as context_enter does; no stream capture may be under way that
 * this call would break (memory, synchronisation). */
CUresult capture_enter(CUcontext *context);
/* The capture in which a stream takes part; NULL = none. */
struct capture *capture_of(CUstream stream);
bool capture_in_context(CUcontext context);
/* True if the capture with this id is under way. Invalidates that capture. */
bool capture_is_under_way(uint64_t id);
/* The capture under way with this id; NULL = none. */
struct capture *capture_find(uint64_t id);
void capture_enlist(struct capture *capture);
/* Takes a capture out of the list of those under way. */
void capture_delist(struct capture *capture);

#endif
