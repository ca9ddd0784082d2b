/* Streams, the default ones included. */
#ifndef PLIMSOLL_EMULATOR_STREAM_H
#define PLIMSOLL_EMULATOR_STREAM_H

#include "cuda/driver.h"

struct waiting; /* work not yet committed; work.c */
struct capture;

struct CUstream_st {
    struct object object;
    CUstream next; /* in its context */
    CUcontext context;
    unsigned flags;
    int priority;
    unsigned long long id;
    pthread_t thread; /* of a per-thread default stream */
    bool per_thread;
    bool dying;    /* destroyed by the program, still has work */
    uint64_t mark; /* of the last work committed; timeline.h */
    struct waiting *first, *last;
    struct capture *capture; /* NULL = not capturing */
    CUgraphNode *tips;       /* while capturing: the nodes that the next one depends on */
    size_t tip_count;
    CUsynchronizationPolicy sync_policy;
    CUaccessPolicyWindow window;
};

CUstream stream_new(CUcontext context, unsigned flags, int priority);
/* A stream among those of its context; NULL without host memory. Any priority will do. */
CUstream stream_make(CUcontext context, unsigned flags, int priority);
/* The stream meant by a handle in the current context: 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD included.
 * NULL where there is none. */
CUstream stream_of(CUcontext context, CUstream handle);
/* Does the stream order itself with the legacy default stream? */
bool stream_is_blocking(const struct CUstream_st *stream);
/* Makes handle 0 mean `stream` for this thread, for the _ptds and _ptsz functions; returns what it meant. */
CUstream stream_set_default(CUstream stream);
void stream_free_all(CUcontext context);
void stream_free(CUstream stream);

#endif
