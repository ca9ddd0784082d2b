#include "cuda/stream/capture/capture.h"

#include "cuda/context/context.h"

static struct capture *first; /* lock; captures under way */
_Thread_local CUstreamCaptureMode capture_thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void capture_enlist(struct capture *capture) {
    capture->next = first;
    first = capture;
}

void capture_delist(struct capture *capture) {
    struct capture **link = &first;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
}

static bool forbids(const struct capture *capture) {
    bool ours = pthread_equal(capture->thread, pthread_self()) != 0;
    if (capture_thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
        return ours || capture_thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    return capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && ours;
}

bool capture_permits(void) {
    bool permitted = true;
    for (struct capture *capture = first; capture; capture = capture->next) {
        if (forbids(capture)) {
            capture->invalid = true;
            permitted = false;
        }
    }
    return permitted;
}

void capture_invalidate(struct capture *capture) {
    capture->invalid = true;
}

struct capture *capture_of(CUstream stream) {
    return stream->capture;
}

bool capture_meets_legacy(CUstream stream) {
    CUcontext context = stream->context;
    if (!first || stream != context->legacy)
        return false;
    bool met = false;
    for (CUstream other = context->streams; other; other = other->next) {
        if (other->capture && stream_is_blocking(other)) {
            other->capture->invalid = true;
            met = true;
        }
    }
    return met;
}

bool capture_in_context(CUcontext context) {
    bool found = false;
    for (CUstream stream = context->streams; first && stream; stream = stream->next) {
        if (stream->capture) {
            stream->capture->invalid = true;
            found = true;
        }
    }
    return found;
}

struct capture *capture_find(uint64_t id) {
    for (struct capture *capture = first; capture; capture = capture->next)
        if (capture->id == id)
            return capture;
    return NULL;
}

bool capture_is_under_way(uint64_t id) {
    struct capture *capture = capture_find(id);
    if (capture)
        capture->invalid = true;
    return capture != NULL;
}

CUresult capture_enter(CUcontext *context) {
    CUresult result = context_enter(context);
    if (result != CUDA_SUCCESS)
        return result;
    return capture_permits() ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}
