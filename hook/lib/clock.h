/* The machine's clock, the common clock of library and broker: CLOCK_MONOTONIC as the first time namespace
 * shows it, in ns. */
#ifndef PLIMSOLL_CLOCK_H
#define PLIMSOLL_CLOCK_H

#include <errno.h>
#include <stdint.h>
#include <time.h>

/* How far the time namespace of this process shifts its clocks. Written at the start of a process alone. */
struct plimsoll_clock {
    uint64_t monotonic_ns; /* modulo 2^64 */
    int64_t boot_ns;
};

extern struct plimsoll_clock plimsoll_clock;

/* Reads the shifts: at the start of a program, and in the child of a fork. Changes errno. */
void plimsoll_clock_find(void);

static inline uint64_t plimsoll_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - plimsoll_clock.monotonic_ns;
}

/* Sleeps for the whole time, whatever signals come. Changes errno. */
static inline void plimsoll_sleep_ms(unsigned duration_ms) {
    struct timespec left = {.tv_sec = duration_ms / 1000, .tv_nsec = duration_ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static inline uint64_t plimsoll_later(uint64_t one, uint64_t other) {
    return one > other ? one : other;
}

static inline uint64_t plimsoll_sooner(uint64_t one, uint64_t other) {
    return one < other ? one : other;
}

#endif
