/* A piece of work, as a call submits it to a stream and as a node of a graph keeps it. */
#ifndef PLIMSOLL_EMULATOR_WORK_H
#define PLIMSOLL_EMULATOR_WORK_H

#include "cuda/driver.h"
#include "cuda/module/module.h"

enum work_kind {
    WORK_DEVICE, /* takes length_ns on the device; `effect` moves its data */
    WORK_SPIN,   /* WORK_DEVICE after a word of memory has reached a value; spin.h */
    WORK_RECORD, /* records an event */
    WORK_WAIT,   /* waits for an event's record number `ticket` */
    WORK_HOST,   /* runs a host function */
    WORK_STORE,  /* stores a value into memory; value.c */
    WORK_UNTIL,  /* waits until memory has a value */
};

enum { WORK_VALUES = 12 };

/* Addresses, sizes and values of a copy or fill; each effect knows their order. */
struct work_data {
    uint64_t values[WORK_VALUES];
};

struct work {
    enum work_kind kind;
    uint64_t length_ns;
    unsigned launches; /* kernels in it: 0 or 1 */
    void (*effect)(const struct work_data *data);
    struct work_data data;
    uint64_t parameters[MODULE_PARAMETERS]; /* parameters of a kernel */
    size_t parameter_count;
    CUgraphNodeType type; /* type of the node that a capture makes of it */
    CUgraph child;        /* the graph that such a node of type GRAPH runs, valid during the call */
    CUevent event;
    uint64_t ticket;
    CUhostFn host;
    CUstreamCallback callback; /* the form of cuStreamAddCallback, with the stream */
    void *host_data;
};

/* The effect of WORK_STORE, and the condition of WORK_UNTIL. */
void work_value_store(const struct work_data *data);
bool work_value_holds(const struct work_data *data);
/* The data of both for a u32: the value to store, or the value that memory must reach. */
struct work_data work_word(uint64_t address, uint64_t value);

#endif
