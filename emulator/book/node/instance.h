/* The MIG instances of a node file's cards. */
#ifndef PLIMSOLL_EMULATOR_NODE_INSTANCE_H
#define PLIMSOLL_EMULATOR_NODE_INSTANCE_H

#include "book/node/node.h"

/* The instances as they were read: by card, and by their number on the card. A row that is described has
 * is_mig. */
struct node_instances {
    struct node_gpu rows[NODE_MAX_GPUS][NODE_MAX_INSTANCES];
};

/* An impossible value, with the remedy. */
struct node_fault {
    const char *field, *value, *remedy;
};

/* Reads a profile such as 1g.5gb: sevenths of the card's processors, and gigabytes. */
bool node_set_profile(struct node_gpu *instance, const char *text);
/* Completes each instance from its card, and places all of them behind the cards in `gpus`. False, with
 * `fault` set, if they do not fit. */
bool node_place_instances(struct node_file *node, const struct node_instances *read,
                          struct node_fault *fault);

#endif
