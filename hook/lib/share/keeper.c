/* The program's threads meter what they launch. The keeper sees to what happens when none of them comes by:
 * it looks at marks at the pace at which the broker reads the pages, and takes notice of the gate's opening
 * and closing. It records nothing in a stream, which the program may end at any moment, but behind a whole
 * context only, and asks the driver about events of ours.
 */
#include "share/keeper.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "clock.h"
#include "driver/driver.h"
#include "say.h"
#include "share/bursts.h"
#include "share/estimates.h"
#include "share/gate.h"
#include "share/looks.h"

#define SHARES (&plimsoll.shares)

enum { KEEPER_NONE, KEEPER_RUNNING, KEEPER_FAILED };

/* The kernel may wake a thread so much later than it asked for; 50 us as a rule. */
#define SLACK_NS 1000ul
#define STACK_BYTES 0x80000
#define LOOK_NS 5000000u /* while a burst is under way: a tick of the broker's */
#define REST_NS                                                                                              \
    50000000u               /* while nothing is: a launch stirs the keeper, unless it is just falling asleep \
                             */
#define OPEN_NS 1000000000u /* while the gate is open: its change wakes the keeper */
#define LINGER_LOOKS 20     /* looks after a burst before it rests, so that few launches have to stir it */
#define ENDING_NS 200000000u

/* The process exits and its driver goes down: from then on the keeper stays out. */
static bool enter_driver(void) {
    __atomic_store_n(&SHARES->is_keeper_inside, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&SHARES->is_ending, __ATOMIC_SEQ_CST))
        return true;
    __atomic_store_n(&SHARES->is_keeper_inside, 0, __ATOMIC_SEQ_CST);
    return false;
}

static void look(void) {
    if (!enter_driver())
        return;
    plimsoll_look(false);
    __atomic_store_n(&SHARES->is_keeper_inside, 0, __ATOMIC_SEQ_CST);
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

/* A launch meanwhile sees that the keeper rests, or the keeper sees the launch. */
static void rest(uint32_t word, uint64_t longest_ns) {
    __atomic_store_n(&SHARES->is_keeper_resting, true, __ATOMIC_SEQ_CST);
    if (!has_work() || longest_ns == OPEN_NS)
        plimsoll_gate_sleep(word, longest_ns);
    __atomic_store_n(&SHARES->is_keeper_resting, false, __ATOMIC_SEQ_CST);
}

void plimsoll_keeper_stir(void) {
    if (__atomic_load_n(&SHARES->is_keeper_resting, __ATOMIC_SEQ_CST) &&
        __atomic_exchange_n(&SHARES->is_keeper_resting, false, __ATOMIC_SEQ_CST))
        plimsoll_gate_stir();
}

static void nap(uint64_t duration_ns) {
    struct timespec left = {.tv_nsec = (long)duration_ns};
    nanosleep(&left, NULL);
}

static void *keep(void *unused) {
    (void)unused;
    unsigned idle_looks = 0;
    plimsoll_depth = 1; /* its calls of the driver are its own */
    prctl(PR_SET_NAME, "plimsoll");
    prctl(PR_SET_TIMERSLACK, SLACK_NS);
    while (!__atomic_load_n(&SHARES->is_ending, __ATOMIC_SEQ_CST)) {
        uint32_t word = plimsoll_gate_word();
        bool is_metering = note_gate(word), is_busy = is_metering && has_work();
        if (is_busy)
            look();
        idle_looks = is_busy ? 0 : idle_looks + 1;
        if (is_metering && idle_looks < LINGER_LOOKS)
            nap(LOOK_NS);
        else
            rest(word, is_metering ? REST_NS : OPEN_NS);
    }
    return NULL;
}

/* --- its beginning and end --------------------------------------------------------------------------------
 */

/* At exit the driver's own handler comes after this one, as it was there first. */
extern int __cxa_atexit(void (*function)(void *), void *argument, void *library);

static void end(void *unused) {
    (void)unused;
    __atomic_store_n(&SHARES->is_ending, 1, __ATOMIC_SEQ_CST);
    for (uint64_t waited_ns = 0;
         waited_ns < ENDING_NS && __atomic_load_n(&SHARES->is_keeper_inside, __ATOMIC_SEQ_CST);
         waited_ns += 100000)
        nap(100000);
}

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
typedef int set_size_function(pthread_attr_t *, size_t);

/* Before glibc 2.34 threads are in a library of their own. This one does not link it, so that no program gets
 * it by the preload; the driver does. Who stands in front of them, as sanitizers do, is asked first. */
static void *thread_function(const char *name) {
    void *found = plimsoll.loader.dlsym(RTLD_DEFAULT, name);
    void *library = found ? NULL : plimsoll.loader.dlopen("libpthread.so.0", RTLD_LAZY | RTLD_NOLOAD);
    if (library)
        found = plimsoll.loader.dlsym(library, name);
    (void)plimsoll.loader.dlerror();
    return found;
}

/* With a stack of `stack_bytes`, 0 for the usual size. */
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
    int failure = create_thread(&thread, &attributes, keep, NULL);
    pthread_attr_destroy(&attributes);
    return failure == 0;
}

/* The program's signals are for its own threads. */
static bool start(void) {
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    bool is_started =
        create(STACK_BYTES) || create(0); /* threads' own data may take more than a small one has */
    sigprocmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

void plimsoll_keeper_need(void) {
    int none = KEEPER_NONE;
    if (!plimsoll_has_gate() || __atomic_load_n(&SHARES->keeper, __ATOMIC_ACQUIRE) != none ||
        !__atomic_compare_exchange_n(&SHARES->keeper, &none, KEEPER_RUNNING, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return;
    int saved = errno;
    if (!start()) {
        __atomic_store_n(&SHARES->keeper, KEEPER_FAILED, __ATOMIC_RELEASE);
        plimsoll_fail("no thread can be started here: the share of this process is metered late");
    } else if (!plimsoll.is_end_watched) {
        plimsoll.is_end_watched = true;
        __cxa_atexit(end, NULL, NULL);
    }
    errno = saved;
}
