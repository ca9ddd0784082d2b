/* Reads the node file: a small INI-like file named by the environment variable PLIMSOLL_EMULATOR. In a
 * container no variable is needed: a container runtime mounts the file at NODE_FILE_MOUNTED, as it mounts a
 * real driver's files. Both libraries parse the file for themselves. */
#ifndef PLIMSOLL_EMULATOR_BOOK_NODE_FILE_H
#define PLIMSOLL_EMULATOR_BOOK_NODE_FILE_H

#include "book/node/node.h"

#define NODE_FILE_VARIABLE "PLIMSOLL_EMULATOR"
#define NODE_FILE_MOUNTED "/run/plimsoll-emulator/node.conf"
/* Names a directory: only GPUs whose device file (nvidia0 for the first one) is there are shown. /dev by
 * default for the mounted file; without either, all GPUs are shown. */
#define NODE_DEVICES_VARIABLE "PLIMSOLL_EMULATOR_DEVICES"

/* The node file of this process: the variable's, else the mounted one; NULL if there is neither. */
const char *node_file_path(void);

/* Reads `path` into `node`. False on any bad input, with one line in `message` that names file, line, field,
 * value and remedy. `path` NULL means that no file is named. */
bool node_file_read(const char *path, struct node_file *node, char message[NODE_MESSAGE_BYTES]);

#endif
