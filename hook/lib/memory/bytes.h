/* Arithmetic on bytes. Results that do not fit are UINT64_MAX, or 0. */
#ifndef PLIMSOLL_BYTES_H
#define PLIMSOLL_BYTES_H

#include <stdint.h>

/* NVIDIA's driver hands out memory in blocks of this size. */
#define PLIMSOLL_BLOCK_BYTES 0x200000u

static inline uint64_t plimsoll_plus(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static inline uint64_t plimsoll_minus(uint64_t a, uint64_t b) {
    return a < b ? 0 : a - b;
}

static inline uint64_t plimsoll_times(uint64_t a, uint64_t b) {
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

/* `bytes` rounded up to a multiple of `to`. */
static inline uint64_t plimsoll_rounded(uint64_t bytes, uint64_t to) {
    uint64_t over = bytes % to;
    return over == 0 ? bytes : plimsoll_plus(bytes - over, to);
}

#endif
