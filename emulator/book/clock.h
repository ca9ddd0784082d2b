/* The one clock of the book: CLOCK_MONOTONIC in nanoseconds, as the machine's first time namespace shows it.
 * A GPU has one time for all programs, whatever namespaces they run in. */
#ifndef BOOK_CLOCK_H
#define BOOK_CLOCK_H

#include <stdint.h>
#include <time.h>

/* How far the time namespace of this process shifts CLOCK_MONOTONIC and CLOCK_BOOTTIME. */
extern int64_t book_clock_shift_ns, book_boot_shift_ns;

/* Reads both: when a book is opened, and when a process claims its slot. */
void book_clock_find(void);

static inline uint64_t book_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec - (uint64_t)book_clock_shift_ns;
}

#endif
