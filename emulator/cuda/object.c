#include "cuda/object.h"

#include <stdint.h>
#include <stdlib.h>

enum { BUCKETS = 4096 };

static struct object *buckets[BUCKETS]; /* the driver's lock */

static struct object **bucket_of(const void *handle) {
    return &buckets[((uintptr_t)handle >> 4) * 2654435761u % BUCKETS];
}

void *object_new(enum object_kind kind, size_t size) {
    struct object *object = calloc(1, size);
    if (!object)
        return NULL;
    struct object **bucket = bucket_of(object);
    object->kind = kind;
    object->next = *bucket;
    *bucket = object;
    return object;
}

void object_free(void *handle) {
    struct object **link = bucket_of(handle);
    while (*link && *link != handle)
        link = &(*link)->next;
    if (*link)
        *link = (*link)->next;
    free(handle);
}

bool object_is(const void *handle, enum object_kind kind) {
    for (const struct object *object = *bucket_of(handle); object; object = object->next)
        if (object == handle)
            return object->kind == kind;
    return false;
}
