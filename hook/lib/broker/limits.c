/* The reader of a seqlock: a copy of the file is consistent if `generation` was even, and the same before and
 * after. */
#include "broker/broker.h"

#include <string.h>

#include "say.h"
#include "state.h"

/* The broker rewrites the whole file in microseconds. A reader that meets the rewriting after this many tries
 * comes back later. */
#define COPY_TRIES 64

/* Copies word by word with atomic loads: a plain memcpy beside a writer would be a data race. */
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

/* A container's GPUs are fixed for its life. Only their numbers change. */
static void store_numbers(const struct plimsoll_limits *copy) {
    for (unsigned i = 0; i < copy->gpu_count; i++) {
        const struct plimsoll_gpu_limit *from = &copy->gpus[i];
        __atomic_store_n(&plimsoll.gpus[i].line_bytes, from->line_bytes, __ATOMIC_RELAXED);
        __atomic_store_n(&plimsoll.gpus[i].granted_bytes, from->granted_bytes, __ATOMIC_RELAXED);
        __atomic_store_n(&plimsoll.gpus[i].excess_bytes, from->excess_bytes, __ATOMIC_RELAXED);
        __atomic_store_n(&plimsoll.gpus[i].context_bytes, from->context_bytes, __ATOMIC_RELAXED);
        __atomic_store_n(&plimsoll.gpus[i].is_measured, from->is_measured, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&plimsoll.flags, copy->flags, __ATOMIC_RELAXED);
    __atomic_store_n(&plimsoll.generation, copy->generation, __ATOMIC_RELEASE);
}

static void store_identities(const struct plimsoll_limits *copy) {
    plimsoll.gpu_count = copy->gpu_count;
    for (unsigned i = 0; i < copy->gpu_count; i++) {
        memcpy(plimsoll.gpus[i].uuid, copy->gpus[i].uuid, sizeof(plimsoll.gpus[i].uuid));
        plimsoll_uuid_bytes(copy->gpus[i].uuid, plimsoll.gpus[i].uuid_bytes);
    }
}

static bool has_same_gpus(const struct plimsoll_limits *copy) {
    if (copy->gpu_count != plimsoll.gpu_count)
        return false;
    for (unsigned i = 0; i < copy->gpu_count; i++)
        if (strcmp(copy->gpus[i].uuid, plimsoll.gpus[i].uuid) != 0)
            return false;
    return true;
}

/* If the new limits cannot be read or name other GPUs, the last limits stay: the program must neither suffer
 * nor gain from a broker's trouble. */
static void refresh_from(const struct plimsoll_limits *mapping, uint64_t generation) {
    if (__atomic_exchange_n(&plimsoll.is_refreshing, true, __ATOMIC_ACQUIRE))
        return; /* another thread refreshes */
    struct plimsoll_limits copy;
    if (plimsoll_limits_copy(mapping, &copy) && has_same_gpus(&copy)) {
        store_numbers(&copy);
        plimsoll_note("limits changed: generation %llu", (unsigned long long)copy.generation);
    } else if (generation % 2 == 0 && generation == __atomic_load_n(&mapping->generation, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&plimsoll.generation, generation, __ATOMIC_RELEASE); /* tried once; not again */
        plimsoll_fail("new limits are not readable or name other GPUs; going on with the last ones");
    }
    __atomic_store_n(&plimsoll.is_refreshing, false, __ATOMIC_RELEASE);
}

/* The odd number just above means that the next limits are being written. Until they are complete, the last
 * ones hold. */
void plimsoll_refresh(void) {
    uint64_t generation = __atomic_load_n(&plimsoll.limits->generation, __ATOMIC_ACQUIRE);
    uint64_t known = __atomic_load_n(&plimsoll.generation, __ATOMIC_RELAXED);
    if (generation != known && generation != known + 1)
        refresh_from(plimsoll.limits, generation);
}

void plimsoll_limits_store(const struct plimsoll_limits *copy) {
    store_identities(copy);
    store_numbers(copy);
}
