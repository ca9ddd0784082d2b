/* A seqlock's reader: the file is consistent if `generation` was even and the same before and after. */
#include "broker/limits.h"

#include <string.h>

/* The broker rewrites the whole file in microseconds; whoever still meets it after this many tries comes
 * back later. */
#define COPY_TRIES 64

/* Word by word, each load atomic: a plain memcpy beside a writer would be a data race. */
static void copy_words(const struct plimsoll_limits *from, struct plimsoll_limits *to) {
    _Static_assert(sizeof(*from) % sizeof(uint64_t) == 0, "whole words");
    const uint64_t *source = (const uint64_t *)(const void *)from;
    for (size_t i = 0; i < sizeof(*from) / sizeof(uint64_t); i++) {
        uint64_t word = __atomic_load_n(&source[i], __ATOMIC_RELAXED);
        memcpy((char *)to + i * sizeof(word), &word, sizeof(word));
    }
}

static bool copy_once(const struct plimsoll_limits *mapping, struct plimsoll_limits *copy) {
    uint64_t before = __atomic_load_n(&mapping->generation, __ATOMIC_ACQUIRE);
    copy_words(mapping, copy);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    uint64_t after = __atomic_load_n(&mapping->generation, __ATOMIC_RELAXED);
    return before == after && before % 2 == 0;
}

static bool is_valid(const struct plimsoll_limits *limits) {
    unsigned char unused[16];
    if (limits->magic != PLIMSOLL_LIMITS_MAGIC || limits->version != PLIMSOLL_VERSION ||
        limits->size != sizeof(*limits) || limits->gpu_count > PLIMSOLL_MAX_GPUS)
        return false;
    for (uint32_t i = 0; i < limits->gpu_count; i++)
        if (!plimsoll_uuid_bytes(limits->gpus[i].uuid, unused))
            return false;
    return true;
}

bool plimsoll_limits_copy(const struct plimsoll_limits *mapping, struct plimsoll_limits *copy) {
    for (int i = 0; i < COPY_TRIES; i++)
        if (copy_once(mapping, copy))
            return is_valid(copy);
    return false;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool plimsoll_uuid_bytes(const char *text, unsigned char bytes[16]) {
    if (memchr(text, 0, PLIMSOLL_UUID_BYTES) != text + 40 || text[3] != '-')
        return false;
    const char *at = text + 4; /* past "GPU-" or "MIG-" */
    for (int i = 0; i < 16; i++, at += 2) {
        bool is_dash_due = i == 4 || i == 6 || i == 8 || i == 10;
        if (is_dash_due && *at++ != '-')
            return false;
        int high = hex_digit(at[0]), low = hex_digit(at[1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}
