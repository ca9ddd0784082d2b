#include "cuda/stream/work.h"

enum { ADDRESS, VALUE, BYTES, CONDITION };

static uint64_t load(const uint64_t *v) {
    const void *word = (const void *)(uintptr_t)v[ADDRESS];
    return v[BYTES] == 4 ? __atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE)
                         : __atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE);
}

/* Compares as signed numbers of the word's width, so that counters may wrap. */
static bool has_come_to(const uint64_t *v, uint64_t now) {
    return v[BYTES] == 4 ? (int32_t)(uint32_t)(now - v[VALUE]) >= 0 : (int64_t)(now - v[VALUE]) >= 0;
}

bool work_value_holds(const struct work_data *data) {
    const uint64_t *v = data->values, now = load(v), mask = v[BYTES] == 4 ? UINT32_MAX : UINT64_MAX;
    switch (v[CONDITION]) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == v[VALUE];
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & v[VALUE]) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return (~(now | v[VALUE]) & mask) != 0;
    default:
        return has_come_to(v, now);
    }
}

void work_value_store(const struct work_data *data) {
    const uint64_t *v = data->values;
    void *word = (void *)(uintptr_t)v[ADDRESS];
    if (v[BYTES] == 4)
        __atomic_store_n((uint32_t *)word, (uint32_t)v[VALUE], __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint64_t *)word, v[VALUE], __ATOMIC_RELEASE);
}

struct work_data work_word(uint64_t address, uint64_t value) {
    return (struct work_data){{address, value, sizeof(uint32_t), CU_STREAM_WAIT_VALUE_GEQ}};
}
