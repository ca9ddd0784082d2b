/* The poller: this library's one thread. The program's threads meter their own launches. The poller handles
 * what happens while no thread makes a call. It polls events as often as the broker reads the pages, and
 * follows the gate's opening and closing. The poller records no event in a stream, because the program may
 * destroy the stream at any moment. It records behind a whole context only, and queries our own events. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "clock.h"
#include "driver/driver.h"
#include "say.h"
#include "share/gate.h"
#include "share/work/meters.h"

#define SHARES (&plimsoll.shares)
#define POLLER (&SHARES->poller)

enum { POLLER_NONE, POLLER_RUNNING, POLLER_FAILED };

/* The kernel may wake a thread this much later than the thread asked for; 50 us by default. */
#define SLACK_NS 1000ul
#define STACK_BYTES 0x80000
/* Between two polls while a burst is under way: one tick of the broker. */
#define POLL_NS 5000000u
/* While nothing is under way. A launch wakes the poller, except at the moment when the poller falls asleep.
 */
#define REST_NS 50000000u
/* While the gate is open: a change of the gate wakes the poller. */
#define OPEN_NS 1000000000u
/* Polls after a burst before the poller rests, so that few launches have to wake it. */
#define LINGER_POLLS 20
/* The longest time for which an exit waits for the poller to leave the driver. */
#define ENDING_NS 200000000u

/* When the process exits, its driver shuts down. From then on the poller stays out of the driver. */
static bool enter_driver(void) {
    __atomic_store_n(&POLLER->is_inside, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&POLLER->is_ending, __ATOMIC_SEQ_CST))
        return true;
    __atomic_store_n(&POLLER->is_inside, 0, __ATOMIC_SEQ_CST);
    return false;
}

static void poll_all(void) {
    if (!enter_driver())
        return;
    plimsoll_poll(false);
    __atomic_store_n(&POLLER->is_inside, 0, __ATOMIC_SEQ_CST);
}

static bool has_work(void) {
    pthread_mutex_lock(&SHARES->lock);
    bool has_any = plimsoll_has_work();
    pthread_mutex_unlock(&SHARES->lock);
    return has_any;
}

static bool note_gate(uint32_t word) {
    uint64_t now_ns = plimsoll_now_ns();
    bool is_metering = plimsoll_gate_state(word, now_ns) != PLIMSOLL_GATE_OPEN;
    pthread_mutex_lock(&SHARES->lock);
    plimsoll_bursts_meter(is_metering, now_ns);
    pthread_mutex_unlock(&SHARES->lock);
    return is_metering;
}

/* Either a concurrent launch sees that the poller rests, or the poller sees the launch. */
static void rest(uint32_t word, uint64_t longest_ns) {
    __atomic_store_n(&POLLER->is_resting, true, __ATOMIC_SEQ_CST);
    if (!has_work() || longest_ns == OPEN_NS)
        plimsoll_gate_sleep(word, longest_ns);
    __atomic_store_n(&POLLER->is_resting, false, __ATOMIC_SEQ_CST);
}

void plimsoll_poller_wake(void) {
    if (__atomic_load_n(&POLLER->is_resting, __ATOMIC_SEQ_CST) &&
        __atomic_exchange_n(&POLLER->is_resting, false, __ATOMIC_SEQ_CST))
        plimsoll_gate_wake();
}

static void nap(uint64_t duration_ns) {
    struct timespec left = {.tv_nsec = (long)duration_ns};
    nanosleep(&left, NULL);
}

static void *poll_on(void *unused) {
    (void)unused;
    unsigned idle_polls = 0;
    plimsoll_depth = 1; /* no hook acts on the poller's own calls of the driver */
    prctl(PR_SET_NAME, "plimsoll");
    prctl(PR_SET_TIMERSLACK, SLACK_NS);
    while (!__atomic_load_n(&POLLER->is_ending, __ATOMIC_SEQ_CST)) {
        uint32_t word = plimsoll_gate_word();
        bool is_metering = note_gate(word), is_busy = is_metering && has_work();
        if (is_busy)
            poll_all();
        idle_polls = is_busy ? 0 : idle_polls + 1;
        if (is_metering && idle_polls < LINGER_POLLS)
            nap(POLL_NS);
        else
            rest(word, is_metering ? REST_NS : OPEN_NS);
    }
    return NULL;
}

/* --- its beginning and end --------------------------------------------------------------------------------
 */

/* At exit the driver's own handler runs after this one, because it was registered first. */
extern int __cxa_atexit(void (*function)(void *), void *argument, void *library);

static void end(void *unused) {
    (void)unused;
    __atomic_store_n(&POLLER->is_ending, 1, __ATOMIC_SEQ_CST);
    for (uint64_t waited_ns = 0;
         waited_ns < ENDING_NS && __atomic_load_n(&POLLER->is_inside, __ATOMIC_SEQ_CST); waited_ns += 100000)
        nap(100000);
}

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
typedef int set_size_function(pthread_attr_t *, size_t);

/* Before glibc 2.34, a library of its own holds the thread functions. This library does not link it, so that
 * the preload brings it into no program; the driver links it. A library in front of these functions, such as
 * a sanitizer, is found first. */
static void *thread_function(const char *name) {
    void *found = plimsoll.loader.dlsym(RTLD_DEFAULT, name);
    void *library = found ? NULL : plimsoll.loader.dlopen("libpthread.so.0", RTLD_LAZY | RTLD_NOLOAD);
    if (library)
        found = plimsoll.loader.dlsym(library, name);
    (void)plimsoll.loader.dlerror();
    return found;
}

/* Creates the thread with a stack of `stack_bytes`; 0 for the default size. */
static bool create(size_t stack_bytes) {
    create_function *create_thread;
    set_size_function *set_size;
    pthread_attr_t attributes;
    pthread_t thread;
    void *found = thread_function("pthread_create"),
         *found_size = thread_function("pthread_attr_setstacksize");
    if (!found || !found_size || pthread_attr_init(&attributes) != 0)
        return false;
    memcpy(&create_thread, &found, sizeof(found)); /* ISO C has no cast for this */
    memcpy(&set_size, &found_size, sizeof(found_size));
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (stack_bytes > 0)
        set_size(&attributes, stack_bytes);
    int failure = create_thread(&thread, &attributes, poll_on, NULL);
    pthread_attr_destroy(&attributes);
    return failure == 0;
}

/* Signals of the program belong to the program's own threads. */
static bool start(void) {
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    bool is_started =
        create(STACK_BYTES) || create(0); /* thread-local data may need more than a small stack */
    sigprocmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

void plimsoll_poller_need(void) {
    int none = POLLER_NONE;
    if (!plimsoll_has_gate() || __atomic_load_n(&POLLER->state, __ATOMIC_ACQUIRE) != none ||
        !__atomic_compare_exchange_n(&POLLER->state, &none, POLLER_RUNNING, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return;
    int saved = errno;
    if (!start()) {
        __atomic_store_n(&POLLER->state, POLLER_FAILED, __ATOMIC_RELEASE);
        plimsoll_fail("no thread can be started here: the share of this process is metered late");
    } else if (!plimsoll.is_end_watched) {
        plimsoll.is_end_watched = true;
        __cxa_atexit(end, NULL, NULL);
    }
    errno = saved;
}
