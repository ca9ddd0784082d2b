/* A piece of work: what a call hands to a stream, and what a node of a graph does. */
#ifndef PLIMSOLL_EMULATOR_WORK_H
#define PLIMSOLL_EMULATOR_WORK_H

#include "cuda/driver.h"
#include "cuda/module/module.h"

enum work_kind {
    WORK_DEVICE, /* takes length_ns on the device; `effect` moves its data */
    WORK_SPIN,   /* the same, after a word of memory has come to a value; spin.h */
    WORK_RECORD, /* of an event */
    WORK_WAIT,   /* for an event's record number `ticket` */
    WORK_HOST,   /* a host function */
    WORK_STORE,  /* of a value into memory; value.c */
    WORK_UNTIL,  /* memory holds a value */
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
    uint64_t parameters[MODULE_PARAMETERS]; /* of a kernel */
    size_t parameter_count;
    CUgraphNodeType type; /* as what a capture records it */
    const void *params; /* of that type, during the call: CUDA_KERNEL_NODE_PARAMS for a kernel; may be NULL */
    CUevent event;
    uint64_t ticket;
    CUhostFn host;
    CUstreamCallback callback; /* cuStreamAddCallback's form, with the stream */
    void *host_data;
};

/* What WORK_STORE does, and what WORK_UNTIL waits for. */
void work_value_store(const struct work_data *data);
bool work_value_holds(const struct work_data *data);
/* What the two above need for an u32: to store it, or to wait until memory has come to it. */
struct work_data work_word(uint64_t address, uint64_t value);

#endif
