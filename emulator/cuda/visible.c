#include "cuda/visible.h"

#include <stdlib.h>
#include <string.h>

struct choice {
    const struct node_file *node;
    int *gpus;
    int count;
};

static bool add(struct choice *choice, int gpu) {
    for (int i = 0; i < choice->count; i++)
        if (choice->gpus[i] == gpu)
            return false;
    choice->gpus[choice->count++] = gpu;
    return true;
}

static bool is_shown(const struct node_file *node, int card) {
    for (int i = 0; i < node->shown_count; i++)
        if (node->shown[i] == card)
            return true;
    return false;
}

/* Adds the card, or in MIG mode its instances. */
static bool add_card(struct choice *choice, int card) {
    if (!choice->node->gpus[card].is_mig)
        return add(choice, card);
    bool added = false;
    for (int part = choice->node->gpu_count; part < choice->node->place_count; part++)
        if (choice->node->gpus[part].card == card)
            added |= add(choice, part);
    return added;
}

static bool has_name(const struct node_gpu *gpu, const char *item, size_t length) {
    return length > strlen("GPU-") && strncmp(item, gpu->uuid, length) == 0;
}

/* One entry of the list: an index, a UUID, or the beginning of a UUID. False ends the list. */
static bool add_listed(struct choice *choice, const char *item, size_t length) {
    const struct node_file *node = choice->node;
    char *end;
    long index = strtol(item, &end, 10);
    bool is_index = end != item && (size_t)(end - item) == length;
    for (int shown = 0; shown < node->shown_count; shown++)
        if (is_index ? index == shown : has_name(&node->gpus[node->shown[shown]], item, length))
            return add_card(choice, node->shown[shown]);
    for (int part = node->gpu_count; !is_index && part < node->place_count; part++)
        if (is_shown(node, node->gpus[part].card) && has_name(&node->gpus[part], item, length))
            return add(choice, part);
    return false;
}

static void add_list(struct choice *choice, const char *list) {
    while (add_listed(choice, list, strcspn(list, ","))) {
        list += strcspn(list, ",");
        if (*list++ != ',')
            return;
    }
}

int visible_gpus(const struct node_file *node, const char *list, int gpus[NODE_MAX_GPUS]) {
    struct choice choice = {.node = node, .gpus = gpus};
    if (list)
        add_list(&choice, list);
    for (int shown = 0; !list && shown < node->shown_count; shown++)
        add_card(&choice, node->shown[shown]);
    for (int i = 0; i < choice.count; i++) {
        if (!node_is_instance(&node->gpus[gpus[i]]))
            continue;
        gpus[0] = gpus[i];
        return 1;
    }
    return choice.count;
}
