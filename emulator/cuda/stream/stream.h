/* Streams, the default ones included. */
#ifndef PLIMSOLL_EMULATOR_STREAM_H
#define PLIMSOLL_EMULATOR_STREAM_H

#include "cuda/driver.h"

struct waiting; /* work not yet committed; queue.c */
struct capture;

enum { STREAM_LEAST_PRIORITY = 0, STREAM_GREATEST_PRIORITY = -5 };

struct CUstream_st {
    struct object object;
    CUstream next; /* in the list of its context */
    CUcontext context;
    unsigned flags;
    int priority;
    unsigned long long id;
    pthread_t thread; /* owner of a per-thread default stream */
    bool per_thread;
    bool dying;    /* destroyed by the program, but still has work */
    uint64_t mark; /* mark of the last committed work; timeline.h */
    struct waiting *first, *last;
    struct capture *capture; /* NULL = not capturing */
    CUgraphNode *tips;       /* while capturing: the nodes on which the next node depends */
    size_t tip_count;
};

CUstream stream_new(CUcontext context, unsigned flags, int priority);
/* True if the stream is implicitly ordered with the legacy default stream. */
bool stream_is_blocking(const struct CUstream_st *stream);
void stream_free(CUstream stream);

#endif
