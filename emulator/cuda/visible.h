/* The GPUs that CUDA shows to a process. */
#ifndef PLIMSOLL_EMULATOR_VISIBLE_H
#define PLIMSOLL_EMULATOR_VISIBLE_H

#include "book/node/node.h"

/* Chooses devices among the node's shown GPUs by `list`, which is CUDA_VISIBLE_DEVICES or NULL. As with
 * NVIDIA's driver, a bad entry ends the list; a process has one MIG instance at most, the first, and then no
 * whole card beside it. Returns the number of devices; `gpus` gets their places in the node. */
int visible_gpus(const struct node_file *node, const char *list, int gpus[NODE_MAX_GPUS]);

#endif
