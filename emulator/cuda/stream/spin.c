#include "cuda/stream/spin.h"

#include "book/timeline.h"
#include "cuda/context/context.h"
#include "cuda/memory/memory.h"
#include "cuda/stream/event/event.h"
#include "cuda/stream/stream.h"

enum { LENGTH, ADDRESS, VALUE, START_ADDRESS, START_VALUE };

static bool valid(uint64_t address) {
    return address && address % sizeof(uint32_t) == 0 && memory_find(address);
}

CUresult spin_prepare(struct work *work) {
    const uint64_t *parameters = work->parameters;
    work->kind = WORK_SPIN;
    work->data = work_word(parameters[ADDRESS], parameters[VALUE]);
    bool good =
        valid(parameters[ADDRESS]) && (!parameters[START_ADDRESS] || valid(parameters[START_ADDRESS]));
    return good ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* The mark of the work before the kernel, including work of streams with which its stream is implicitly
 * ordered. */
static uint64_t mark_before(CUstream stream) {
    CUcontext context = stream->context;
    uint64_t mark = stream->mark;
    if (stream != context->legacy)
        return stream_is_blocking(stream)
                   ? timeline_later(&driver.book, context->gpu, mark, context->legacy->mark)
                   : mark;
    for (CUstream other = context->streams; other; other = other->next)
        if (stream_is_blocking(other))
            mark = timeline_later(&driver.book, context->gpu, mark, other->mark);
    return mark;
}

static void start(const struct work *work) {
    struct work_data word = work_word(work->parameters[START_ADDRESS], work->parameters[START_VALUE]);
    if (work->parameters[START_ADDRESS])
        work_value_store(&word);
}

/* The process counts the kernel as spinning already behind earlier work, so the process keeps its turn
 * when that work ends. */
static bool is_at_head(struct spin *spin, CUstream stream, const struct work *work, uint64_t *due_ns) {
    int gpu = stream->context->gpu;
    if (spin->phase == SPIN_NEW)
        timeline_spin(&driver.book, gpu, 1, work->launches);
    spin->phase = SPIN_BEHIND;
    if (!timeline_reached(&driver.book, gpu, mark_before(stream), due_ns))
        return false;
    spin->phase = SPIN_AT_HEAD;
    spin->mark = timeline_next_slice(&driver.book, gpu);
    return true;
}

static bool has_started(struct spin *spin, CUstream stream, const struct work *work, uint64_t *due_ns) {
    if (spin->phase < SPIN_AT_HEAD && !is_at_head(spin, stream, work, due_ns))
        return false;
    if (spin->phase == SPIN_STARTED)
        return true;
    if (!timeline_reached(&driver.book, stream->context->gpu, spin->mark, due_ns))
        return false;
    spin->phase = SPIN_STARTED;
    start(work);
    return true;
}

bool spin_go_on(struct spin *spin, CUstream stream, const struct work *work, uint64_t *due_ns) {
    int gpu = stream->context->gpu;
    event_settle(
        gpu, timeline_span_count(
                 &driver.book, gpu)); /* while the kernel spins, nothing is issued that would settle events */
    if (!has_started(spin, stream, work, due_ns) || !work_value_holds(&work->data))
        return false;
    spin->phase = SPIN_OVER;
    stream->mark = timeline_end_spin(&driver.book, gpu, work->length_ns);
    return true;
}

void spin_drop(struct spin *spin, CUstream stream) {
    if (spin->phase != SPIN_NEW && spin->phase != SPIN_OVER)
        timeline_spin(&driver.book, stream->context->gpu, -1, 0);
    spin->phase = SPIN_OVER;
}
