/* The keys that each section of a node file may have. */
#ifndef PLIMSOLL_EMULATOR_BOOK_NODE_KEYS_H
#define PLIMSOLL_EMULATOR_BOOK_NODE_KEYS_H

#include "book/node/instance.h"
#include "book/node/node.h"

enum node_section { NODE_TOP, NODE_GPU, NODE_MIG, NODE_LINK };

/* A node as far as its file was read, and the section that is being read. */
struct node_draft {
    struct node_file *node;
    enum node_section section;
    int gpu, peer; /* of the section; in [mig N M], the card and the number */
    struct node_instances mig;
    bool linked[NODE_MAX_GPUS][NODE_MAX_GPUS];
};

struct node_key {
    enum node_section section;
    const char *name;
    bool (*set)(struct node_draft *draft, const char *value); /* false: no such value */
    const char *remedy;
};

/* NULL if the section has no such key. */
const struct node_key *node_key_named(enum node_section section, const char *name);

/* The card or instance of the section. */
struct node_gpu *node_draft_gpu(struct node_draft *draft);

#endif
