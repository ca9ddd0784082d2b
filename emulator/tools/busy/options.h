/* The command line of `busy`. */
#ifndef PLIMSOLL_EMULATOR_TOOLS_BUSY_OPTIONS_H
#define PLIMSOLL_EMULATOR_TOOLS_BUSY_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_STEPS = 4096 };

/* The function that allocates. */
enum path { ALLOC, PITCH, MANAGED, ASYNC, CREATE };

extern struct options {
    uint64_t memory_bytes, kernel_us, gap_us, iterations;
    uint64_t seconds_ms, hold_ms, rest_ms, step_ms;
    unsigned steps, repeat;
    int device;
    enum path path;
    bool keep_going;
} options;

/* False on a bad option, which standard error then names. */
bool options_read(int argc, char **argv);

#endif
