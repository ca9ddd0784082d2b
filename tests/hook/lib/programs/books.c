/* Drives the ledger and the map of holdings directly, under sanitizers.
 *
 * `books map`: random operations beside a plain array. `books threads`: threads on one map and one slot.
 * `books errno`: a refusal under a rain of signals.
 * `books collide ROUNDS`: processes that reserve the whole line at the same instant; in every round exactly
 * one must get it. `books line ROUNDS`: processes that take and give back; what was granted never passes the
 * line. */
#include "holdings.h"
#include "ledger.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(claim)                                                                                         \
    do {                                                                                                     \
        if (!(claim)) {                                                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #claim);                                      \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

#define KEYS 5000u
#define LINE 1000u

static struct plimsoll_holdings holdings;

static struct plimsoll_holding holding_of(uint64_t key, uint64_t bytes) {
    return (struct plimsoll_holding){.key = key, .bytes = bytes, .with = key % 3, .kind = HELD_MEMORY};
}

/* --- one thread, beside an array -------------------------------------------------------------------------
 */

static uint64_t expected[KEYS];
static unsigned swept;

static void count_swept(const struct plimsoll_holding *gone) {
    CHECK(expected[gone->key / 512] == gone->bytes);
    expected[gone->key / 512] = 0;
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

static int run_map(void) {
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
    plimsoll_holdings_reset(&holdings);
    CHECK(plimsoll_holdings_count(&holdings, HELD_MEMORY, 0) == 0);
    return 0;
}

/* --- threads ---------------------------------------------------------------------------------------------
 */

static struct plimsoll_counts *counts;

static void *churn(void *argument) {
    uint64_t base = (uint64_t)(uintptr_t)argument << 40;
    for (uint64_t i = 0; i < 20000; i++) {
        struct plimsoll_holding found;
        if (!plimsoll_ledger_reserve(counts, 0, 0, 1 + i % 400, LINE))
            continue;
        CHECK(plimsoll_holdings_put(&holdings, holding_of(base + i % 1000 * 512, 1 + i % 400)));
        CHECK(plimsoll_holdings_take(&holdings, HELD_MEMORY, base + i % 1000 * 512, &found));
        plimsoll_ledger_give_back(counts, 0, 0, found.bytes);
    }
    return NULL;
}

static int run_threads(void) {
    pthread_t threads[4];
    CHECK(plimsoll_ledger_claim(counts, 1) == 0);
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK(plimsoll_ledger_used(counts, 0) == 0);
    return 0;
}

/* --- signals ---------------------------------------------------------------------------------------------
 */

static volatile sig_atomic_t signals;

static void count_signal(int number) {
    signals += number == SIGALRM;
}

static int run_errno(void) {
    struct itimerval often = {.it_interval = {.tv_usec = 500}, .it_value = {.tv_usec = 500}};
    struct sigaction action = {.sa_handler = count_signal};
    CHECK(plimsoll_ledger_claim(counts, 1) == 0 && plimsoll_ledger_claim(counts, 2) == 1);
    CHECK(plimsoll_ledger_reserve(counts, 1, 0, LINE, LINE));
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (signals < 20) {
        errno = 77;
        CHECK(!plimsoll_ledger_retry(counts, 0, 0, 1, LINE));
        CHECK(errno == 77);
    }
    return 0;
}

/* --- processes -------------------------------------------------------------------------------------------
 */

#define PROCESSES 3u

struct shared {
    int is_over;
    uint64_t standing;
    uint64_t most;
};

static struct shared *shared;

/* What a process does that asks for more than is left: its add stands for a moment, and goes. */
static void come_and_go(void) {
    uint64_t *word = &counts->slots[plimsoll_ledger_claim(counts, 2)].used_bytes[0];
    while (!__atomic_load_n(&shared->is_over, __ATOMIC_SEQ_CST)) {
        __atomic_fetch_add(word, LINE, __ATOMIC_SEQ_CST);
        for (volatile int i = 0; i < 10000; i++)
            ;
        __atomic_fetch_sub(word, LINE, __ATOMIC_SEQ_CST);
        for (volatile int i = 0; i < 20000; i++)
            ;
    }
    _exit(0);
}

static int run_collide(unsigned rounds) {
    unsigned refused = 0;
    CHECK(plimsoll_ledger_claim(counts, 1) == 0);
    if (fork() == 0)
        come_and_go();
    for (unsigned i = 0; i < rounds; i++) {
        if (!plimsoll_ledger_reserve(counts, 0, 0, LINE, LINE) &&
            !plimsoll_ledger_retry(counts, 0, 0, LINE, LINE))
            refused++;
        else
            plimsoll_ledger_give_back(counts, 0, 0, LINE);
        usleep(20);
    }
    __atomic_store_n(&shared->is_over, 1, __ATOMIC_SEQ_CST);
    wait(NULL);
    printf("%u\n", refused);
    return 0;
}

static void note_most(uint64_t standing) {
    uint64_t most = __atomic_load_n(&shared->most, __ATOMIC_SEQ_CST);
    while (standing > most && !__atomic_compare_exchange_n(&shared->most, &most, standing, false,
                                                           __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

static void take_and_give(unsigned slot, unsigned rounds) {
    srand(slot + 1);
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t bytes = 1 + (unsigned)rand() % LINE;
        if (!plimsoll_ledger_reserve(counts, slot, 0, bytes, LINE))
            continue;
        note_most(__atomic_add_fetch(&shared->standing, bytes, __ATOMIC_SEQ_CST));
        __atomic_fetch_sub(&shared->standing, bytes, __ATOMIC_SEQ_CST);
        plimsoll_ledger_give_back(counts, slot, 0, bytes);
    }
}

static int run_line(unsigned rounds) {
    for (unsigned i = 0; i < PROCESSES; i++)
        if (fork() == 0) {
            take_and_give((unsigned)plimsoll_ledger_claim(counts, i + 1), rounds);
            _exit(0);
        }
    for (unsigned i = 0; i < PROCESSES; i++) {
        int status = 1;
        wait(&status);
        CHECK(status == 0);
    }
    CHECK(plimsoll_ledger_used(counts, 0) == 0);
    CHECK(shared->most <= LINE);
    printf("%llu\n", (unsigned long long)shared->most);
    return 0;
}

static void *share(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

int main(int argc, char **argv) {
    counts = share(sizeof(*counts));
    shared = share(sizeof(*shared));
    const char *what = argc > 1 ? argv[1] : "map";
    unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    if (strcmp(what, "map") == 0)
        return run_map();
    if (strcmp(what, "threads") == 0)
        return run_threads();
    if (strcmp(what, "errno") == 0)
        return run_errno();
    return strcmp(what, "collide") == 0 ? run_collide(rounds) : run_line(rounds);
}
