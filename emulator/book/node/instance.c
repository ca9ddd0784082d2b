/* The MIG instances of a node file's cards: their profiles, and what each inherits from its card. */
#include "book/node/instance.h"

#include <stdio.h>
#include <string.h>

#include "book/node/default.h"
#include "book/node/value.h"

enum {
    CARD_SLICES = 7, /* a card has this many slices of processors, whatever its model */
};

static bool refuse(struct node_fault *fault, const char *field, const char *value, const char *remedy) {
    *fault = (struct node_fault){field, value, remedy};
    return false;
}

bool node_set_profile(struct node_gpu *instance, const char *text) {
    unsigned slices, gigabytes;
    int used = 0;
    if (sscanf(text, "%1ug.%3ugb%n", &slices, &gigabytes, &used) != 2 || !used || text[used])
        return false;
    instance->slices = slices;
    if (!instance->memory_bytes)
        instance->memory_bytes = gigabytes * 1000000000ull;
    return slices >= 1 && slices <= CARD_SLICES && gigabytes > 0 &&
           node_copy_text(instance->profile, sizeof instance->profile, text);
}

/* An instance has what its card has, apart from its own part of it. */
static bool complete(const struct node_file *node, int card, unsigned number, const struct node_gpu *read,
                     struct node_gpu *instance, struct node_fault *fault) {
    const struct node_gpu *whole = &node->gpus[card];
    memcpy(instance, whole, sizeof *instance);
    instance->is_mig = false;
    instance->card = card;
    instance->instance = number;
    instance->slices = read->slices;
    memcpy(instance->profile, read->profile, sizeof instance->profile);
    instance->memory_bytes = read->memory_bytes;
    instance->reserved_bytes = 0;
    instance->sm_count = read->sm_count ? read->sm_count : whole->sm_count * read->slices / CARD_SLICES;
    if (instance->context_bytes > instance->memory_bytes)
        return refuse(fault, "memory", read->profile, "must have room for one context");
    int length = snprintf(instance->model, sizeof instance->model, "%s MIG %s", whole->model, read->profile);
    if (length >= (int)sizeof instance->model)
        return refuse(fault, "model", whole->model, "must leave room for ` MIG ` and the profile");
    /* No card has such a number: the bytes without `GPU-` and `MIG-`, as CUDA gives them, differ too. */
    unsigned index = NODE_MAX_GPUS + (unsigned)card * NODE_MAX_INSTANCES + number;
    node_default_uuid(node->path, "MIG", index, instance->uuid);
    if (*read->uuid)
        memcpy(instance->uuid, read->uuid, sizeof instance->uuid);
    return true;
}

static bool place(struct node_file *node, int card, unsigned number, const struct node_gpu *read,
                  struct node_fault *fault) {
    if (node->place_count == NODE_MAX_GPUS)
        return refuse(fault, "section", "[mig]", "describe at most 16 GPUs and instances together");
    struct node_gpu *instance = &node->gpus[node->place_count];
    if (!complete(node, card, number, read, instance, fault))
        return false;
    for (int other = 0; other < node->place_count; other++)
        if (strcmp(node->gpus[other].uuid, instance->uuid) == 0)
            return refuse(fault, "uuid", instance->uuid, "give each instance a uuid of its own");
    node->place_count++;
    return true;
}

static bool place_all(struct node_file *node, int card, const struct node_gpu rows[NODE_MAX_INSTANCES],
                      struct node_fault *fault) {
    const struct node_gpu *whole = &node->gpus[card];
    uint64_t left_bytes = whole->memory_bytes - whole->reserved_bytes;
    unsigned left_slices = CARD_SLICES;
    for (unsigned number = 0; number < NODE_MAX_INSTANCES; number++) {
        const struct node_gpu *read = &rows[number];
        if (!read->is_mig)
            continue;
        if (!read->slices)
            return refuse(fault, "profile", "(none)", "give each [mig] section one, such as 1g.5gb");
        if (read->slices > left_slices || read->memory_bytes > left_bytes)
            return refuse(fault, "profile", read->profile, "the instances of a GPU must fit in it");
        left_slices -= read->slices;
        left_bytes -= read->memory_bytes;
        if (!place(node, card, number, read, fault))
            return false;
    }
    return true;
}

bool node_place_instances(struct node_file *node, const struct node_instances *read,
                          struct node_fault *fault) {
    node->place_count = node->gpu_count;
    for (int card = 0; card < node->gpu_count; card++)
        if (!place_all(node, card, read->rows[card], fault))
            return false;
    /* The other rows have default uuids, which depend on the path. A container may know the same file by
     * another path. */
    memset(&node->gpus[node->place_count], 0,
           sizeof node->gpus[0] * (size_t)(NODE_MAX_GPUS - node->place_count));
    return true;
}
