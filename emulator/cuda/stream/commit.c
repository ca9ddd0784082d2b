#include "cuda/stream/commit.h"

#include "book/timeline.h"
#include "cuda/context/context.h"
#include "cuda/stream/event/event.h"
#include "cuda/stream/stream.h"

enum {
    ROOM_NS = 2000000, /* a blocked launch goes on after this much work, not after each commit */
};

static struct {
    uint64_t marks[QUEUE_DEPTH];
    uint64_t count;
} queues[NODE_MAX_GPUS]; /* lock; marks of the latest commits */

void commit_await_room(int gpu) {
    uint64_t mark = queues[gpu].marks[queues[gpu].count % QUEUE_DEPTH], due_ns;
    if (!mark || timeline_reached(&driver.book, gpu, mark, &due_ns))
        return;
    uint64_t quarter = (queues[gpu].marks[(queues[gpu].count - 1) % QUEUE_DEPTH] - mark) / 4;
    mark += quarter < ROOM_NS ? quarter : ROOM_NS;
    pthread_mutex_unlock(&driver.lock);
    timeline_wait(&driver.book, gpu, mark);
    pthread_mutex_lock(&driver.lock);
}

static void commit_device(CUstream stream, const struct work *work) {
    int gpu = stream->context->gpu;
    if (work->effect)
        work->effect(&work->data);
    uint64_t spans;
    stream->mark = timeline_issue(&driver.book, gpu, work->length_ns, work->launches, &spans);
    event_settle(gpu, spans);
    queues[gpu].marks[queues[gpu].count++ % QUEUE_DEPTH] = stream->mark;
}

/* A record takes no time but needs its process's turn. While other processes have the GPU, the record is
 * reached in this process's next turn. */
static void commit_record(CUstream stream, const struct work *work) {
    int gpu = stream->context->gpu;
    uint64_t due_ns, slice = 0;
    if (timeline_reached(&driver.book, gpu, stream->mark, &due_ns))
        slice = timeline_next_slice(&driver.book, gpu);
    if (slice)
        stream->mark = slice;
    event_commit(work->event, work->ticket, gpu, stream->mark);
}

void commit(CUstream stream, const struct work *work) {
    int gpu = stream->context->gpu;
    if (work->kind == WORK_DEVICE)
        commit_device(stream, work);
    else if (work->kind == WORK_RECORD)
        commit_record(stream, work);
    else if (work->kind == WORK_STORE)
        work_value_store(&work->data);
    else if (work->kind == WORK_WAIT && work->event->gpu == gpu) /* both run on one queue, in order */
        stream->mark = timeline_later(&driver.book, gpu, stream->mark, work->event->mark);
}
