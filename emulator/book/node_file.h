/* Reads the node file: a small INI-like file named by the environment variable PLIMSOLL_EMULATOR. Both
 * libraries parse it for themselves. */
#ifndef PLIMSOLL_EMULATOR_BOOK_NODE_FILE_H
#define PLIMSOLL_EMULATOR_BOOK_NODE_FILE_H

#include "book/node.h"

#define NODE_FILE_VARIABLE "PLIMSOLL_EMULATOR"

/* Reads `path` into `node`. False on any bad input, with one line in `message` that names file, line, field,
 * value and remedy. `path` NULL means that the variable is not set. */
bool node_file_read(const char *path, struct node_file *node, char message[NODE_MESSAGE_BYTES]);

#endif
