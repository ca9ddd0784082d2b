/* Events. */
#ifndef PLIMSOLL_EMULATOR_EVENT_H
#define PLIMSOLL_EMULATOR_EVENT_H

#include "cuda/driver.h"

struct CUevent_st {
    struct object object;
    CUevent next; /* of all */
    CUcontext context;
    unsigned flags;
    unsigned uses;         /* number of pieces of waiting work that refer to the event */
    bool dying;            /* destroyed by the program, but waiting work still refers to it */
    int gpu;               /* the GPU whose timeline has `mark` */
    uint64_t mark;         /* mark of the last committed record */
    uint64_t recorded_ns;  /* time of that commit */
    uint64_t reached_ns;   /* time at which the record was reached; 0 = not known yet */
    uint64_t ticket;       /* number of records so far */
    uint64_t committed;    /* ticket of the last committed record */
    uint64_t whole;        /* ticket of the last record of a whole context, one part in each stream */
    unsigned parts;        /* parts of that record that are not yet committed */
    uint64_t parts_mark;   /* the latest mark of its committed parts */
    uint64_t capture_id;   /* capture of the last record; 0 = none */
    CUgraphNode *captured; /* the captured nodes for which this record stands */
    size_t captured_count;
};

/* Makes an event; NULL without host memory. */
CUevent event_new(CUcontext context, unsigned flags);
/* True if the given record is done. If the record is on the timeline but not done, *due_ns is the time for
 * the next check. */
bool event_reached(CUevent event, uint64_t ticket, uint64_t *due_ns);
/* Commits a record, or one part of a record, behind work up to `mark`. */
void event_commit(CUevent event, uint64_t ticket, int gpu, uint64_t mark);
/* Dates reached records before the book forgets the time at which they were reached. Costs little unless
 * that is soon. */
void event_settle(int gpu, uint64_t spans);
void event_release(CUevent event);
void event_free_all(CUcontext context);
void event_forget_capture(CUevent event);
bool event_is(CUevent event);

#endif
