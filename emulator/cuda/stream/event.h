/* Events. */
#ifndef PLIMSOLL_EMULATOR_EVENT_H
#define PLIMSOLL_EMULATOR_EVENT_H

#include "cuda/driver.h"

struct CUevent_st {
    struct object object;
    CUevent next; /* of all */
    CUcontext context;
    unsigned flags;
    unsigned uses;         /* pieces of waiting work that name it */
    bool dying;            /* destroyed by the program, still named */
    int gpu;               /* on whose timeline `mark` is */
    uint64_t mark;         /* of the last committed record */
    uint64_t recorded_ns;  /* when that was committed */
    uint64_t reached_ns;   /* when it was reached; 0 = not known yet */
    uint64_t ticket;       /* records so far */
    uint64_t committed;    /* ticket of the last committed record */
    uint64_t whole;        /* ticket of the last record of a whole context, one part in each stream */
    unsigned parts;        /* of that one, not yet committed */
    uint64_t parts_mark;   /* the latest of those that are */
    uint64_t capture_id;   /* last recorded in this capture; 0 = in none */
    CUgraphNode *captured; /* the nodes that this record stands for */
    size_t captured_count;
};

/* NULL without host memory. */
CUevent event_new(CUcontext context, unsigned flags);
/* Has the given record been done? If not and it is on the timeline, *due_ns is when to look again. */
bool event_reached(CUevent event, uint64_t ticket, uint64_t *due_ns);
/* A record, or one part of one, came to its turn behind work up to `mark`. */
void event_commit(CUevent event, uint64_t ticket, int gpu, uint64_t mark);
/* Dates what has been reached, before the book forgets when that was; cheap unless it is time for that. */
void event_settle(int gpu, uint64_t spans);
void event_release(CUevent event);
void event_free_all(CUcontext context);
void event_forget_capture(CUevent event);
bool event_is(CUevent event);

#endif
