/* The table of all handles that the driver has given out. It recognises a stale or foreign handle without
 * touching the handle's memory. The caller holds the driver's lock. */
#ifndef PLIMSOLL_EMULATOR_OBJECT_H
#define PLIMSOLL_EMULATOR_OBJECT_H

#include <stdbool.h>
#include <stddef.h>

enum object_kind {
    OBJECT_CONTEXT = 1,
    OBJECT_STREAM,
    OBJECT_EVENT,
    OBJECT_MODULE,
    OBJECT_FUNCTION,
    OBJECT_LIBRARY,
    OBJECT_KERNEL,
    OBJECT_POOL,
    OBJECT_PHYSICAL,
    OBJECT_ARRAY,
    OBJECT_MIPMAP,
    OBJECT_GRAPH,
    OBJECT_NODE,
    OBJECT_GRAPH_EXEC,
    OBJECT_EXTERNAL_MEMORY,
    OBJECT_GREEN,
    OBJECT_RESOURCES,
};

/* The first field of every such object. */
struct object {
    struct object *next;
    enum object_kind kind;
};

/* A zeroed object of `size` bytes; NULL without host memory. */
void *object_new(enum object_kind kind, size_t size);
/* Forgets the handle and frees the object. */
void object_free(void *object);
bool object_is(const void *handle, enum object_kind kind);

#endif
