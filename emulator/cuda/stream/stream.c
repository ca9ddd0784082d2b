#include "cuda/stream/stream.h"

#include "cuda/context/context.h"

static unsigned long long last_id; /* lock */

CUstream stream_new(CUcontext context, unsigned flags, int priority) {
    CUstream stream = object_new(OBJECT_STREAM, sizeof *stream);
    if (!stream)
        return NULL;
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = ++last_id;
    return stream;
}

bool stream_is_blocking(const struct CUstream_st *stream) {
    return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

void stream_free(CUstream stream) {
    CUstream *link = &stream->context->streams;
    while (*link && *link != stream)
        link = &(*link)->next;
    if (*link)
        *link = stream->next;
    object_free(stream);
}
