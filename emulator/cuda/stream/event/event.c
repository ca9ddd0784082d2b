#include "cuda/stream/event/event.h"

#include <stdlib.h>

#include "book/state_file.h"
#include "book/timeline.h"
#include "cuda/context/context.h"

static CUevent first; /* lock */

CUevent event_new(CUcontext context, unsigned flags) {
    CUevent event = object_new(OBJECT_EVENT, sizeof *event);
    if (!event)
        return NULL;
    event->context = context;
    event->gpu = context->gpu;
    event->flags = flags;
    event->next = first;
    return first = event;
}

void event_forget_capture(CUevent event) {
    free(event->captured);
    event->captured = NULL;
    event->captured_count = 0;
    event->capture_id = 0;
}

static void free_event(CUevent event) {
    CUevent *link = &first;
    while (*link != event)
        link = &(*link)->next;
    *link = event->next;
    event_forget_capture(event);
    object_free(event);
}

void event_release(CUevent event) {
    if (--event->uses == 0 && event->dying)
        free_event(event);
}

void event_free_all(CUcontext context) {
    for (CUevent event = first, next; event; event = next) {
        next = event->next;
        if (event->context == context && !event->uses)
            free_event(event);
        else if (event->context == context)
            event->dying = true;
    }
}

bool event_is(CUevent event) {
    return object_is(event, OBJECT_EVENT) && !event->dying;
}

void event_commit(CUevent event, uint64_t ticket, int gpu, uint64_t mark) {
    uint64_t due_ns;
    if (ticket == event->whole) {
        event->parts_mark = timeline_later(&driver.book, gpu, mark, event->parts_mark);
        mark = event->parts_mark;
        if (--event->parts)
            return;
    }
    if (ticket < event->committed)
        return; /* a later record of the event, on a faster stream, was committed first */
    event->gpu = gpu;
    event->mark = mark;
    bool reached = timeline_reached(&driver.book, gpu, mark, &due_ns);
    event->recorded_ns =
        book_now_ns(); /* read after the look: a pause between them dates nothing too early */
    event->reached_ns = reached ? event->recorded_ns : 0;
    event->committed = ticket;
}

/* A record is reached after the work before it, but not before the record was committed. */
static void date(CUevent event) {
    uint64_t at_ns = timeline_reached_at(&driver.book, event->gpu, event->mark);
    event->reached_ns = at_ns > event->recorded_ns ? at_ns : event->recorded_ns;
}

bool event_reached(CUevent event, uint64_t ticket, uint64_t *due_ns) {
    if (book_is_cut_off(&driver.book))
        return true;
    if (event->committed < ticket || !timeline_reached(&driver.book, event->gpu, event->mark, due_ns))
        return false;
    if (!event->reached_ns && event->committed)
        date(event);
    return true;
}

void event_settle(int gpu, uint64_t spans) {
    static uint64_t settled[NODE_MAX_GPUS]; /* lock; count of this process's stretches at the last settling */
    uint64_t due_ns;
    if (spans - settled[gpu] < BOOK_MAX_SPANS / 2)
        return;
    settled[gpu] = spans;
    for (CUevent event = first; event; event = event->next)
        if (event->gpu == gpu && event->committed && !event->reached_ns)
            event_reached(event, event->committed, &due_ns);
}
