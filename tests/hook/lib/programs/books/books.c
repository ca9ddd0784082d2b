/* Drives the ledger and the map of holdings directly, under sanitizers.
 *
 * `books map`: random operations beside a plain array. `books threads`: threads on one map and one slot.
 * `books errno`: a refusal under a rain of signals.
 * `books collide ROUNDS`: beside a process that is always about to withdraw. `books hopeless ROUNDS`: beside
 * a process that asks for more than is left, again and again. `books dead`: a dead process leaves its word,
 * and its slot to another. */
#include "books.h"
#include "memory/ledger.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#define LINE 1000u

/* --- threads ---------------------------------------------------------------------------------------------
 */

static struct plimsoll_holdings holdings;
static struct plimsoll_counts *counts;

static bool takes(unsigned slot, uint64_t bytes) {
    static const uint64_t generation = 2;
    struct plimsoll_ceiling ceiling = {.most_bytes = LINE, .generation = &generation, .seen = 2};
    return plimsoll_ledger_reserve(counts, slot, 0, bytes, &ceiling) == VERDICT_FITS;
}

/* As the library does: a collision is waited out. */
static bool takes_in_turn(unsigned slot, uint64_t bytes) {
    static const uint64_t generation = 2;
    struct plimsoll_ceiling ceiling = {.most_bytes = LINE, .generation = &generation, .seen = 2};
    enum plimsoll_verdict verdict = plimsoll_ledger_reserve(counts, slot, 0, bytes, &ceiling);
    for (unsigned round = 0; verdict == VERDICT_COLLIDED && plimsoll_ledger_pause(counts, slot, round);
         round++)
        verdict = plimsoll_ledger_reserve(counts, slot, 0, bytes, &ceiling);
    return verdict == VERDICT_FITS;
}

static void *churn(void *argument) {
    uint64_t base = (uint64_t)(uintptr_t)argument << 40;
    for (uint64_t i = 0; i < 20000; i++) {
        struct plimsoll_holding found;
        if (!takes(0, 1 + i % 400))
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
    CHECK(plimsoll_ledger_used_but(counts, 0, NULL) == 0);
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
    plimsoll_ledger_add(counts, 1, 0, LINE);
    counts->slots[1].attempts = 1ull << 32 | 1; /* killed while it tried */
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (signals < 20) {
        errno = 77;
        CHECK(!takes_in_turn(0, 1));
        CHECK(errno == 77);
    }
    return 0;
}

/* --- processes -------------------------------------------------------------------------------------------
 */

static int *is_over; /* shared with the child */

/* A process asks for more than is left: its addition is there for a moment, and is then taken back. */
static void come_and_go(void) {
    struct plimsoll_slot *slot = &counts->slots[plimsoll_ledger_claim(counts, 2)];
    uint64_t *word = &slot->used_bytes[0];
    while (!__atomic_load_n(is_over, __ATOMIC_SEQ_CST)) {
        __atomic_fetch_add(&slot->attempts, 1ull << 32 | 1, __ATOMIC_SEQ_CST);
        __atomic_fetch_add(word, LINE, __ATOMIC_SEQ_CST);
        for (volatile int i = 0; i < 10000; i++)
            ;
        __atomic_fetch_sub(word, LINE, __ATOMIC_SEQ_CST);
        __atomic_fetch_sub(&slot->attempts, 1, __ATOMIC_SEQ_CST);
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
        if (!takes_in_turn(0, LINE))
            refused++;
        else
            plimsoll_ledger_give_back(counts, 0, 0, LINE);
        usleep(20);
    }
    __atomic_store_n(is_over, 1, __ATOMIC_SEQ_CST);
    wait(NULL);
    printf("%u\n", refused);
    return 0;
}

/* Slot 0 holds a unit, so that the whole line fits in no other slot. */
static void ask_in_vain(void) {
    CHECK(plimsoll_ledger_claim(counts, 2) == 1);
    while (!__atomic_load_n(is_over, __ATOMIC_SEQ_CST))
        CHECK(!takes(1, LINE));
    _exit(0);
}

static int run_hopeless(unsigned rounds) {
    unsigned refused = 0;
    CHECK(plimsoll_ledger_claim(counts, 1) == 0);
    CHECK(takes(0, 1));
    if (fork() == 0)
        ask_in_vain();
    for (unsigned i = 0; i < rounds; i++) {
        if (!takes(0, LINE / 2))
            refused++;
        else
            plimsoll_ledger_give_back(counts, 0, 0, LINE / 2);
        usleep(20);
    }
    __atomic_store_n(is_over, 1, __ATOMIC_SEQ_CST);
    wait(NULL);
    printf("%u\n", refused);
    return 0;
}

static enum plimsoll_verdict reserve_without(const struct plimsoll_dead *dead, uint64_t bytes) {
    static const uint64_t generation = 2;
    struct plimsoll_ceiling ceiling = {
        .most_bytes = LINE, .generation = &generation, .seen = 2, .dead = dead};
    return plimsoll_ledger_reserve(counts, 0, 0, bytes, &ceiling);
}

/* Slot 1 holds the whole line and was about to reserve when its owner 2 died. */
static int run_dead(void) {
    struct plimsoll_dead dead = {.owners = {0, 2}};
    CHECK(plimsoll_ledger_claim(counts, 1) == 0 && plimsoll_ledger_claim(counts, 2) == 1);
    plimsoll_ledger_add(counts, 1, 0, LINE);
    counts->slots[1].attempts = 1;
    CHECK(reserve_without(NULL, 1) == VERDICT_COLLIDED);
    CHECK(reserve_without(&dead, LINE + 1) == VERDICT_PAST && reserve_without(&dead, LINE) == VERDICT_FITS);
    CHECK(reserve_without(&dead, 1) == VERDICT_PAST);
    plimsoll_ledger_give_back(counts, 0, 0, LINE);
    counts->slots[1].owner = 0;
    CHECK(plimsoll_ledger_claim(counts, 3) == 1);
    plimsoll_ledger_add(counts, 1, 0, LINE);
    CHECK(reserve_without(&dead, 1) == VERDICT_PAST);
    return 0;
}

static void *share(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

int main(int argc, char **argv) {
    counts = share(sizeof(*counts));
    is_over = share(sizeof(*is_over));
    const char *what = argc > 1 ? argv[1] : "map";
    unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    if (strcmp(what, "map") == 0)
        return run_map();
    if (strcmp(what, "threads") == 0)
        return run_threads();
    if (strcmp(what, "errno") == 0)
        return run_errno();
    if (strcmp(what, "dead") == 0)
        return run_dead();
    if (strcmp(what, "hopeless") == 0)
        return run_hopeless(rounds);
    return run_collide(rounds);
}
