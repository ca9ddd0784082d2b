/* The common part of the benchmarks' programs: a failed call ends the program, and calls are timed in bursts.
 */
#ifndef PLIMSOLL_BENCH_TASK_H
#define PLIMSOLL_BENCH_TASK_H

#include <cuda.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Calls between two readings of the clock: many, so that the reading costs nothing, and few, so that most
 * bursts are not interrupted and the median is one of those. */
#define BURST 64
#define MOST_BURSTS 8192

/* The most launches in the queue, about as many as a real driver takes before a launch waits for room. The
 * emulator keeps a list of them. */
#define MOST_QUEUED 1024

#define MUST(call) must(call, #call)

static inline void must(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s answered %d\n", what, result);
        exit(3);
    }
}

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline int by_size(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

/* Prints the time of one of `BURST` calls, in the median of all bursts. */
static inline void tell_median(uint64_t *took_ns, size_t bursts) {
    qsort(took_ns, bursts, sizeof took_ns[0], by_size);
    printf("%.2f\n", (double)took_ns[bursts / 2] / BURST);
}

#endif
