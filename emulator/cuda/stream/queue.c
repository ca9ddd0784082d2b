#include "cuda/stream/queue.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "book/state_file.h"
#include "book/timeline.h"
#include "cuda/context/context.h"
#include "cuda/stream/commit.h"
#include "cuda/stream/event/event.h"
#include "cuda/stream/spin.h"
#include "cuda/stream/stream.h"

enum {
    PORTER_NAP_NS = 200000, /* sleep while waiting work depends on a flag or the like */
};

struct waiting {
    struct waiting *next;
    uint64_t number;
    struct work work;
    struct spin spin;
};

static uint64_t last_number;                     /* lock; orders waiting work across streams */
static unsigned waiting_count;                   /* lock */
static unsigned waiting_launches, waiting_spins; /* lock; the kernels among them, and those that spin */
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER; /* work for the porter arrived */
static pthread_cond_t brought = PTHREAD_COND_INITIALIZER; /* waiting work was committed */
static pthread_cond_t held_up = PTHREAD_COND_INITIALIZER; /* the porter is in a host function */
static CUstream in_host_function; /* lock; the stream whose host function runs; NULL = none */
static bool porter_runs;          /* lock */

/* True if older work waits in a stream with which this stream is implicitly ordered. */
static bool stands_behind(CUstream stream, uint64_t number) {
    CUstream legacy = stream->context->legacy;
    if (stream != legacy)
        return stream_is_blocking(stream) && legacy->first && legacy->first->number < number;
    for (CUstream other = stream->context->streams; other; other = other->next)
        if (stream_is_blocking(other) && other->first && other->first->number < number)
            return true;
    return false;
}

/* True if this work can be committed once all work before it in its stream is committed. */
static bool is_ready(CUstream stream, const struct work *work, uint64_t *due_ns) {
    if (work->kind == WORK_HOST || work->kind == WORK_STORE)
        return timeline_reached(&driver.book, stream->context->gpu, stream->mark, due_ns);
    if (work->kind == WORK_UNTIL)
        return timeline_reached(&driver.book, stream->context->gpu, stream->mark, due_ns) &&
               work_value_holds(&work->data);
    if (work->kind != WORK_WAIT)
        return true;
    if (work->event->committed >= work->ticket && work->event->gpu == stream->context->gpu)
        return true;
    return event_reached(work->event, work->ticket, due_ns);
}

/* Runs host functions one at a time, because the driver has one thread for them. Other streams' work goes
 * on meanwhile. */
static void run_host(CUstream stream, const struct work *work) {
    in_host_function = stream;
    pthread_cond_signal(&held_up);
    driver_forbid_thread(true);
    pthread_mutex_unlock(&driver.lock);
    if (work->callback)
        work->callback(stream, CUDA_SUCCESS, work->host_data);
    else
        work->host(work->host_data);
    pthread_mutex_lock(&driver.lock);
    driver_forbid_thread(false);
    in_host_function = NULL;
}

static bool is_launch(const struct work *work) {
    return work->kind == WORK_DEVICE || work->kind == WORK_SPIN;
}

static void count_waiting(const struct work *work, unsigned change) {
    waiting_count += change;
    waiting_launches += is_launch(work) ? change : 0;
    waiting_spins += work->kind == WORK_SPIN ? change : 0;
}

static void take_first(CUstream stream) {
    struct waiting *first = stream->first;
    stream->first = first->next;
    if (!stream->first)
        stream->last = NULL;
    count_waiting(&first->work, -1u);
    spin_drop(&first->spin, stream);
    if (first->work.event)
        event_release(first->work.event);
    free(first);
}

static bool is_first_ready(CUstream stream, uint64_t *due_ns) {
    struct waiting *first = stream->first;
    if (book_is_cut_off(&driver.book))
        return true;
    return first->work.kind == WORK_SPIN ? spin_go_on(&first->spin, stream, &first->work, due_ns)
                                         : is_ready(stream, &first->work, due_ns);
}

static bool is_host_function(CUstream stream) {
    return stream->first && stream->first->work.kind == WORK_HOST;
}

/* Commits the oldest waiting work of a stream if that is possible. A process that is cut off from the book
 * drops the work instead. A host function stays in the list while it runs, so that all work behind it
 * waits. */
static bool bring(CUstream stream, uint64_t *due_ns) {
    if (in_host_function && (stream == in_host_function || is_host_function(stream)))
        return false;
    if (!stream->first || stands_behind(stream, stream->first->number) || !is_first_ready(stream, due_ns))
        return false;
    if (book_is_cut_off(&driver.book))
        ;
    else if (stream->first->work.kind == WORK_HOST)
        run_host(stream, &stream->first->work);
    else
        commit(stream, &stream->first->work);
    take_first(stream);
    if (stream->dying && !stream->first)
        stream_free(stream);
    pthread_cond_broadcast(&brought);
    return true;
}

static bool bring_context(CUcontext context, uint64_t *due_ns) {
    uint64_t next_ns = *due_ns, legacy_ns = *due_ns;
    if (!context->legacy)
        return false;
    if (bring(context->legacy, &legacy_ns))
        return true;
    next_ns = legacy_ns < next_ns ? legacy_ns : next_ns;
    for (CUstream stream = context->streams; stream; stream = stream->next) {
        uint64_t this_ns = next_ns;
        if (bring(stream, &this_ns))
            return true;
        next_ns = this_ns < next_ns ? this_ns : next_ns;
    }
    *due_ns = next_ns;
    return false;
}

static bool bring_any(uint64_t *due_ns) {
    for (CUcontext context = context_first(); context; context = context->next)
        if (bring_context(context, due_ns))
            return true;
    return false;
}

/* Commits waiting work, or sleeps. The caller holds the lock, which is released during the sleep. */
static void bring_or_nap(void) {
    uint64_t latest_ns = book_now_ns() + PORTER_NAP_NS, due_ns = latest_ns;
    if (bring_any(&due_ns))
        return;
    pthread_mutex_unlock(&driver.lock);
    if (due_ns < latest_ns)
        timeline_sleep_until(due_ns);
    else
        nanosleep(&(struct timespec){.tv_nsec = PORTER_NAP_NS}, NULL); /* no due time needs a precise sleep */
    pthread_mutex_lock(&driver.lock);
}

static void *porter(void *unused) {
    (void)unused;
    pthread_mutex_lock(&driver.lock);
    while (true) {
        if (!waiting_count)
            pthread_cond_wait(&arrived, &driver.lock);
        else
            bring_or_nap();
    }
    return NULL;
}

/* Does the porter's work while the porter is in a host function. */
static void *relief(void *unused) {
    (void)unused;
    pthread_mutex_lock(&driver.lock);
    while (true) {
        if (!in_host_function || !waiting_count)
            pthread_cond_wait(&held_up, &driver.lock);
        else
            bring_or_nap();
    }
    return NULL;
}

static bool start(void *(*function)(void *)) {
    pthread_t thread;
    bool started = pthread_create(&thread, NULL, function, NULL) == 0;
    if (started)
        pthread_detach(thread);
    return started;
}

static bool start_porter(void) {
    sigset_t all, before;
    if (porter_runs)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all,
                    &before); /* the program's signal handlers must run on its own threads */
    porter_runs = start(porter) && start(relief);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return porter_runs;
}

static CUresult append(CUstream stream, const struct work *work) {
    struct waiting *waiting = calloc(1, sizeof *waiting);
    if (!waiting || !start_porter()) {
        free(waiting);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    waiting->number = ++last_number;
    waiting->work = *work;
    if (work->event)
        work->event->uses++;
    if (stream->last)
        stream->last->next = waiting;
    else
        stream->first = waiting;
    stream->last = waiting;
    count_waiting(work, 1);
    pthread_cond_signal(&arrived);
    return CUDA_SUCCESS;
}

/* Submits a kernel that spins. It starts at once if it can, and ends at once if it need not spin. */
static CUresult append_spin(CUstream stream, const struct work *work) {
    uint64_t due_ns;
    CUresult result = append(stream, work);
    if (result == CUDA_SUCCESS && stream->first == stream->last)
        bring(stream, &due_ns);
    return result;
}

CUresult queue_submit(CUstream stream, const struct work *work) {
    uint64_t due_ns;
    while (is_launch(work) && stream->first && waiting_spins && waiting_launches >= QUEUE_DEPTH)
        pthread_cond_wait(&brought, &driver.lock);
    if (work->kind == WORK_SPIN)
        return append_spin(stream, work);
    bool wait = waiting_count && (stream->first || stands_behind(stream, last_number + 1));
    if (wait || work->kind == WORK_HOST || !is_ready(stream, work, &due_ns))
        return append(stream, work);
    if (work->kind == WORK_DEVICE)
        commit_await_room(stream->context->gpu);
    commit(stream, work);
    return CUDA_SUCCESS;
}

bool queue_is_done(CUstream stream) {
    uint64_t due_ns;
    return !stream->first && timeline_reached(&driver.book, stream->context->gpu, stream->mark, &due_ns);
}

void queue_finish(CUstream stream) {
    uint64_t number = last_number;
    int gpu = stream->context->gpu;
    while (stream->first && stream->first->number <= number)
        pthread_cond_wait(&brought, &driver.lock);
    uint64_t mark = stream->mark;
    pthread_mutex_unlock(&driver.lock);
    timeline_wait(&driver.book, gpu, mark);
    pthread_mutex_lock(&driver.lock);
}

static uint64_t latest_mark(CUcontext context) {
    uint64_t mark = context->legacy->mark;
    for (CUstream stream = context->streams; stream; stream = stream->next)
        mark = timeline_later(&driver.book, context->gpu, mark, stream->mark);
    return mark;
}

static bool has_waiting(CUcontext context, uint64_t number) {
    if (context->legacy->first && context->legacy->first->number <= number)
        return true;
    for (CUstream stream = context->streams; stream; stream = stream->next)
        if (stream->first && stream->first->number <= number)
            return true;
    return false;
}

void queue_finish_context(CUcontext context) {
    uint64_t number = last_number;
    while (waiting_count && has_waiting(context, number))
        pthread_cond_wait(&brought, &driver.lock);
    uint64_t mark = latest_mark(context);
    pthread_mutex_unlock(&driver.lock);
    timeline_wait(&driver.book, context->gpu, mark);
    pthread_mutex_lock(&driver.lock);
}

void queue_drop(CUstream stream) {
    while (stream->first)
        take_first(stream);
}
