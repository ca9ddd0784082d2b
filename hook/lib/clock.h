/* CLOCK_MONOTONIC, the common clock of library and broker, in ns. */
#ifndef PLIMSOLL_CLOCK_H
#define PLIMSOLL_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t plimsoll_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t plimsoll_later(uint64_t one, uint64_t other) {
    return one > other ? one : other;
}

static inline uint64_t plimsoll_sooner(uint64_t one, uint64_t other) {
    return one < other ? one : other;
}

#endif
