#include "cuda/stream/awaited.h"

#include <stdlib.h>

#include "cuda/context/context.h"
#include "cuda/stream/queue.h"
#include "cuda/stream/stream.h"

struct awaited {
    struct awaited *next;
    CUevent event;
    uint64_t ticket;
};

static void forget(struct awaited **link) {
    struct awaited *awaited = *link;
    *link = awaited->next;
    event_release(awaited->event);
    free(awaited);
}

static void forget_reached(CUcontext context) {
    uint64_t due_ns;
    for (struct awaited **link = &context->awaited; *link;)
        if (event_reached((*link)->event, (*link)->ticket, &due_ns))
            forget(link);
        else
            link = &(*link)->next;
}

bool event_await(CUcontext context, CUevent event) {
    struct awaited *awaited = calloc(1, sizeof *awaited);
    if (!awaited)
        return false;
    *awaited = (struct awaited){.next = context->awaited, .event = event, .ticket = event->ticket};
    event->uses++;
    context->awaited = awaited;
    forget_reached(context);
    return true;
}

void event_await_in_new(CUstream stream) {
    forget_reached(stream->context);
    for (struct awaited *awaited = stream->context->awaited; awaited; awaited = awaited->next) {
        struct work work = {.kind = WORK_WAIT, .event = awaited->event, .ticket = awaited->ticket};
        queue_submit(stream, &work);
    }
}

void event_await_no_more(CUcontext context) {
    while (context->awaited)
        forget(&context->awaited);
}
