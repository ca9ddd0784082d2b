/* What the benchmarks' own programs have in common: a call that fails ends them, and time is told in bursts.
 */
#ifndef PLIMSOLL_BENCH_TASK_H
#define PLIMSOLL_BENCH_TASK_H

#include <cuda.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Between two looks at the clock, so that the clock itself costs nothing; short, so that most bursts are not
 * interrupted, and the median is of those. */
#define BURST 64
#define MOST_BURSTS 8192

/* How many launches are handed over at most, about where a real driver lets a launch wait for room; the
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

/* Says what one of `BURST` took, in the median of all bursts. */
static inline void tell_median(uint64_t *took_ns, size_t bursts) {
    qsort(took_ns, bursts, sizeof took_ns[0], by_size);
    printf("%.2f\n", (double)took_ns[bursts / 2] / BURST);
}

#endif
