/* The common part of a tenant's files: the current order, its results, and launches.
 *
 *   main.c       reads orders, and prints results
 *   steps.c      time, chance, and the count of steps and latencies
 *   device.c     the kernels, the device, and the device's own sums
 *   steady.c     modes that keep a GPU at work: `async`, `deep`, `sync`, `graph`, `duty`, `jitter`, `loader`,
 *                `fan-out`
 *   requests.c   modes that serve: `infer`, `light`, `random`; and `loop`
 *   coupled.c    modes whose work waits for itself: `gil`, `streams`, `streams-ahead`, `events`, `persistent`
 *   ranks.c      modes of two GPUs that wait for each other: `collective`, `ranks` */
#ifndef PLIMSOLL_BENCH_TENANT_H
#define PLIMSOLL_BENCH_TENANT_H

#include "../../task.h"

#include <stdbool.h>
#include <stddef.h>

#define US 1000ull
#define MS 1000000ull
#define MOST_LATENCIES 65536

/* `each` is the mode's own number: kernels in a graph, nanoseconds between requests, threads, launches.
 * `place` is the place in the sequence of random numbers at which the mode begins to draw. */
struct order {
    uint64_t kernel_ns, begin_ns, end_ns, each, place;
};

/* A step is what the mode repeats. */
struct done {
    uint64_t kernels, steps;
    uint64_t longest_step_ns;
    int other_pid; /* the second process; 0 for none */
    size_t latency_count;
    uint32_t latencies_us[MOST_LATENCIES];
};

extern struct order order;
extern struct done done;
extern CUcontext context;
extern CUstream stream;

struct mode {
    const char *name;
    void (*work)(void);
    bool prepares; /* the mode waits for `begin_ns` by itself, and works before that */
};

extern const struct mode steady_modes[], request_modes[], coupled_modes[],
    rank_modes[]; /* each list ends with a nameless mode */

void sleep_until(uint64_t due_ns);
void pause_for(uint64_t ns);
uint64_t between(uint64_t value, uint64_t least, uint64_t most);
/* Begins the sequence of random numbers again. */
void draw_anew(void);
/* A number from 0 to 1, from a sequence that is the same in each run. */
double drawn(void);
/* Counts a step that begins now, and the time since the step before. */
void count_step(void);
void add_latency(uint64_t due_ns);

void device_prepare(bool is_gpu);
CUfunction device_kernel(const char *name);
/* A kernel of this many nanoseconds on the first GPU's stream. */
void launch(uint64_t length_ns);
void launch_on(CUfunction function, CUstream on, uint64_t length_ns);

/* A kernel that stores `started` at `start` (0: nowhere), spins until the word at `address` has come to
 * `value`, and then works for `length_ns`. */
struct spin {
    uint64_t length_ns;
    CUdeviceptr address;
    uint32_t value;
    CUdeviceptr start;
    uint32_t started;
};

void launch_spin(CUfunction function, CUstream on, struct spin spin);

#define MOST_AHEAD 8

/* This many steps of a stream, counted from 1, may be queued. */
struct queue {
    CUstream stream;
    CUevent ends[MOST_AHEAD];
    unsigned ahead;
};

CUstream stream_new(void);
struct queue queue_new(CUstream on, unsigned ahead);
void queue_wait(const struct queue *queue, uint64_t step);
void queue_mark(const struct queue *queue, uint64_t step);
/* Waits for all that is queued. */
void queue_free(const struct queue *queue);

/* The second process of `ranks`. */
int rank_main(char **arguments);

/* Starts, or ends, reading the device's own sums. */
void device_watch(bool is_queued);
void device_unwatch(void);
void device_print_samples(void);

#endif
