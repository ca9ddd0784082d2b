/* The values of a node file that says nothing. */
#ifndef PLIMSOLL_EMULATOR_NODE_DEFAULT_H
#define PLIMSOLL_EMULATOR_NODE_DEFAULT_H

#include "book/node/node.h"

/* Fills a node that is all zeros, apart from its path: the node, and each GPU that it may have. */
void node_set_defaults(struct node_file *node);
/* Without uuids in the node file, each GPU and each instance of each node still has a stable identity of its
 * own. `kind` is GPU or MIG. */
void node_default_uuid(const char *path, const char *kind, unsigned index, char uuid[NODE_UUID_BYTES]);

#endif
