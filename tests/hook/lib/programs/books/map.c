/* The map of holdings, one thread, beside an array. */
#include "books.h"

#include <stdlib.h>

#define KEYS 5000u

static struct plimsoll_holdings holdings;

struct plimsoll_holding holding_of(uint64_t key, uint64_t bytes) {
    return (struct plimsoll_holding){.key = key, .bytes = bytes, .with = key % 3, .kind = HELD_MEMORY};
}

static uint64_t expected[KEYS];
static unsigned swept;

static void count_swept(const struct plimsoll_holding *gone) {
    CHECK(expected[gone->key / 512] == gone->bytes);
    expected[gone->key / 512] = 0;
    swept++;
}

static void count_mapping(const struct plimsoll_holding *gone) {
    CHECK(gone->kind == HELD_MAPPING);
    swept++;
}

static void step(unsigned random_value) {
    unsigned at = random_value % KEYS;
    uint64_t key = (uint64_t)at * 512;
    struct plimsoll_holding found;
    if (random_value / KEYS % 2 == 0 && !expected[at]) {
        expected[at] = random_value | 1u;
        CHECK(plimsoll_holdings_put(&holdings, holding_of(key, expected[at])));
        return;
    }
    CHECK(plimsoll_holdings_get(&holdings, HELD_MEMORY, key, &found) == (expected[at] != 0));
    CHECK(!plimsoll_holdings_get(&holdings, HELD_ARRAY, key, &found));
    if (plimsoll_holdings_take(&holdings, HELD_MEMORY, key, &found))
        CHECK(found.bytes == expected[at]);
    else
        CHECK(expected[at] == 0);
    expected[at] = 0;
}

/* Mappings at 0, 10, 20…: exactly those that begin in a range are removed, and no others of that key. */
static void check_mappings(void) {
    struct plimsoll_holding found;
    for (uint64_t at = 0; at < 1000; at++)
        CHECK(plimsoll_holdings_put(
            &holdings,
            (struct plimsoll_holding){.key = at * 10, .bytes = 10, .with = 7, .kind = HELD_MAPPING}));
    plimsoll_holdings_put(&holdings, (struct plimsoll_holding){.key = 500, .kind = HELD_ARRAY});
    swept = 0;
    plimsoll_holdings_sweep_mappings(&holdings, 10, 9000, count_mapping);
    CHECK(swept == 899 && plimsoll_holdings_get(&holdings, HELD_ARRAY, 500, &found));
    plimsoll_holdings_sweep(&holdings, 7, count_mapping);
    CHECK(swept == 899 && plimsoll_holdings_take(&holdings, HELD_MAPPING, 0, &found));
    plimsoll_holdings_sweep_mappings(&holdings, 0, UINT64_MAX, count_mapping);
    CHECK(swept == 999);
}

int run_map(void) {
    srand(1);
    for (int i = 0; i < 400000; i++)
        step((unsigned)rand());
    unsigned due = 0;
    for (unsigned at = 0; at < KEYS; at++)
        due += expected[at] != 0 && at * 512 % 3 == 1;
    plimsoll_holdings_sweep(&holdings, 1, count_swept);
    CHECK(due > 0 && swept == due);
    for (unsigned at = 0; at < KEYS; at++) {
        struct plimsoll_holding found;
        bool is_there = plimsoll_holdings_get(&holdings, HELD_MEMORY, (uint64_t)at * 512, &found);
        CHECK(is_there == (expected[at] != 0));
    }
    check_mappings();
    plimsoll_holdings_reset(&holdings);
    for (unsigned at = 0; at < KEYS; at++)
        CHECK(!plimsoll_holdings_take(&holdings, HELD_MEMORY, (uint64_t)at * 512,
                                      &(struct plimsoll_holding){0}));
    return 0;
}
