/* A capture under way, for the two files that make up stream capture. */
#ifndef PLIMSOLL_EMULATOR_CAPTURE_SESSION_H
#define PLIMSOLL_EMULATOR_CAPTURE_SESSION_H

#include "cuda/stream/capture.h"

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

void capture_enlist(struct capture *capture);
/* Takes all streams out of a capture and frees it, but not its graph. */
void capture_discard(struct capture *capture);
/* What the next node on this stream will depend on. False without host memory. */
bool capture_set_tips(CUstream stream, const CUgraphNode *nodes, size_t count);
bool capture_add_tip(CUstream stream, CUgraphNode node);

#endif
