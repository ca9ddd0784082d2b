/* Drives the ledger and the map of holdings directly, under sanitizers.
 *
 * `books map`: random operations beside a plain array. `books threads`: threads on one map and one slot.
 * `books errno`: a refusal under a rain of signals.
 * `books collide ROUNDS`: beside a process that is always about to withdraw. `books hopeless ROUNDS`: beside
 * a process that asks for more than is left, again and again. `books both ROUNDS`: processes that reserve the
 * whole line at the same instant; in every round exactly one must get it. `books line ROUNDS`: processes that
 * take and give back; what was granted never passes the line. `books sink ROUNDS`: nor a line that sank
 * meanwhile. `books dead`: a dead process leaves its word, and its slot to another. */
#include "books.h"
#include "memory/ledger.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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

#define PROCESSES 3u

struct shared {
    int is_over;
    uint64_t standing;
    uint64_t most;
    int meetings[3];
    unsigned winners;
    uint64_t generation, line;
    uint64_t kept[PROCESSES];
};

static struct shared *shared;

/* A process asks for more than is left: its addition is there for a moment, and is then taken back. */
static void come_and_go(void) {
    struct plimsoll_slot *slot = &counts->slots[plimsoll_ledger_claim(counts, 2)];
    uint64_t *word = &slot->used_bytes[0];
    while (!__atomic_load_n(&shared->is_over, __ATOMIC_SEQ_CST)) {
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
    __atomic_store_n(&shared->is_over, 1, __ATOMIC_SEQ_CST);
    wait(NULL);
    printf("%u\n", refused);
    return 0;
}

/* Slot 0 holds a unit, so that the whole line fits in no other slot. */
static void ask_in_vain(void) {
    CHECK(plimsoll_ledger_claim(counts, 2) == 1);
    while (!__atomic_load_n(&shared->is_over, __ATOMIC_SEQ_CST))
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
        if (!takes(slot, bytes))
            continue;
        note_most(__atomic_add_fetch(&shared->standing, bytes, __ATOMIC_SEQ_CST));
        __atomic_fetch_sub(&shared->standing, bytes, __ATOMIC_SEQ_CST);
        plimsoll_ledger_give_back(counts, slot, 0, bytes);
    }
}

static void run_in_children(unsigned count, void (*run)(unsigned slot, unsigned rounds), unsigned rounds) {
    for (unsigned i = 0; i < count; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed check in the parent ends all */
            run((unsigned)plimsoll_ledger_claim(counts, i + 1), rounds);
            _exit(0);
        }
}

static void wait_for_children(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        int status = 1;
        wait(&status);
        CHECK(status == 0);
    }
}

static int run_line(unsigned rounds) {
    run_in_children(PROCESSES, take_and_give, rounds);
    wait_for_children(PROCESSES);
    CHECK(plimsoll_ledger_used_but(counts, 0, NULL) == 0);
    CHECK(shared->most <= LINE);
    printf("%llu\n", (unsigned long long)shared->most);
    return 0;
}

/* --- both want all of it ---------------------------------------------------------------------------------
 */

static void meet(int *meeting, int count) {
    __atomic_fetch_add(meeting, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(meeting, __ATOMIC_SEQ_CST) < count)
        sched_yield();
}

/* Two that fit one at a time begin at the same instant, and hold what they got until both are done. */
static void want_all(unsigned slot, unsigned rounds) {
    for (unsigned i = 0; i < rounds; i++) {
        meet(&shared->meetings[0], 2 * (int)(i + 1));
        bool is_winner = takes_in_turn(slot, LINE);
        __atomic_fetch_add(&shared->winners, is_winner, __ATOMIC_SEQ_CST);
        meet(&shared->meetings[1], 2 * (int)(i + 1));
        if (is_winner)
            plimsoll_ledger_give_back(counts, slot, 0, LINE);
        CHECK(__atomic_load_n(&shared->winners, __ATOMIC_SEQ_CST) == i + 1);
        meet(&shared->meetings[2], 2 * (int)(i + 1));
    }
}

static int run_both(unsigned rounds) {
    run_in_children(2, want_all, rounds);
    wait_for_children(2);
    printf("%u\n", shared->winners);
    return 0;
}

/* --- a line that sinks -----------------------------------------------------------------------------------
 */

/* `limits` as the broker rewrites it, and as one process last read it. */
static void read_line(struct plimsoll_ceiling *ceiling) {
    do {
        ceiling->seen = __atomic_load_n(&shared->generation, __ATOMIC_SEQ_CST);
        ceiling->most_bytes = __atomic_load_n(&shared->line, __ATOMIC_SEQ_CST);
    } while (ceiling->seen % 2 == 1 ||
             ceiling->seen != __atomic_load_n(&shared->generation, __ATOMIC_SEQ_CST));
}

static void write_line(uint64_t line) {
    __atomic_fetch_add(&shared->generation, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&shared->line, line, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&shared->generation, 1, __ATOMIC_SEQ_CST);
}

/* Keeps what it was granted for a moment, and says so where the auditor can sum it up. */
static void live_under_a_moving_line(unsigned slot, unsigned rounds) {
    struct plimsoll_ceiling ceiling = {.generation = &shared->generation};
    srand(slot + 1);
    (void)rounds;
    read_line(&ceiling);
    while (!__atomic_load_n(&shared->is_over, __ATOMIC_SEQ_CST)) {
        uint64_t bytes = 1 + (unsigned)rand() % (LINE / 2);
        enum plimsoll_verdict verdict = plimsoll_ledger_reserve(counts, slot, 0, bytes, &ceiling);
        if (verdict == VERDICT_FITS) {
            __atomic_store_n(&shared->kept[slot], bytes, __ATOMIC_SEQ_CST);
            for (volatile int i = rand() % 200; i > 0; i--)
                ;
            __atomic_store_n(&shared->kept[slot], 0, __ATOMIC_SEQ_CST);
            plimsoll_ledger_give_back(counts, slot, 0, bytes);
        } else if (verdict == VERDICT_CHANGED) {
            read_line(&ceiling);
        }
    }
}

static uint64_t all_kept(void) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < PROCESSES; i++)
        sum += __atomic_load_n(&shared->kept[i], __ATOMIC_SEQ_CST);
    return sum;
}

/* Lowers the line, sums the words once, and from then on nobody may come to hold more than that sum or the
 * line. Prints how often the words stood above the new line at that moment: the race that this is about. */
static int run_sink(unsigned rounds) {
    unsigned above = 0;
    write_line(LINE);
    run_in_children(PROCESSES, live_under_a_moving_line, 0);
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t low = LINE / 4;
        write_line(low);
        uint64_t audited = plimsoll_ledger_used_but(counts, 0, NULL);
        uint64_t most = audited > low ? audited : low;
        above += audited > low;
        for (int look = 0; look < 20; look++) {
            CHECK(all_kept() <= most);
            usleep(20);
        }
        write_line(LINE);
        usleep(50);
    }
    __atomic_store_n(&shared->is_over, 1, __ATOMIC_SEQ_CST);
    wait_for_children(PROCESSES);
    CHECK(plimsoll_ledger_used_but(counts, 0, NULL) == 0);
    printf("%u\n", above);
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
    shared = share(sizeof(*shared));
    const char *what = argc > 1 ? argv[1] : "map";
    unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    if (strcmp(what, "map") == 0)
        return run_map();
    if (strcmp(what, "threads") == 0)
        return run_threads();
    if (strcmp(what, "errno") == 0)
        return run_errno();
    if (strcmp(what, "both") == 0)
        return run_both(rounds);
    if (strcmp(what, "sink") == 0)
        return run_sink(rounds);
    if (strcmp(what, "dead") == 0)
        return run_dead();
    if (strcmp(what, "hopeless") == 0)
        return run_hopeless(rounds);
    return strcmp(what, "collide") == 0 ? run_collide(rounds) : run_line(rounds);
}
