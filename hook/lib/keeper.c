/* The program's threads meter what they launch; the keeper sees to what happens when none of them comes by:
 *
 *   shut       waits for what was queued, and reports that all is drained
 *   metered    closes a burst that ended, so that its length is known soon
 *   contended  gives the gate up when nothing has been unfinished for a while
 *   any        looks now and then whether the broker still listens
 *
 * It records nothing in a stream, which the program may end at any moment, but behind a whole context only;
 * and asks the driver about events of ours.
 */
#include "keeper.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "bursts.h"
#include "driver.h"
#include "gate.h"
#include "launching.h"
#include "marks.h"
#include "reports.h"
#include "say.h"
#include "stalls.h"

#define SHARES (&plimsoll.shares)

enum { KEEPER_NONE, KEEPER_RUNNING, KEEPER_FAILED };

/* The kernel may wake a thread so much later than it asked for; 50 µs as a rule. */
#define SLACK_NS 1000ul
#define STACK_BYTES 0x80000
#define REST_NS 1000000000u /* until the broker is looked after again */
#define SEEK_NS 100000000u  /* while there is none */
#define LOOK_NS 1000000u    /* while a burst is under way */
#define IDLE_LOOK_NS 16000000u
#define DRAIN_LEAST_NS 50000u
#define DRAIN_MOST_NS 500000u
#define EVIDENCE_NS 100000000u
#define ASK_AGAIN_NS 1000000u /* a capture under way may have ended by then */
#define ENDING_NS 200000000u

/* What the keeper remembers from one look to the next. */
struct watch {
    uint32_t word;         /* obeyed now */
    uint64_t word_ns;      /* since when */
    unsigned epoch;        /* up to which opening of the gate all is known */
    uint64_t sought_ns;    /* when the broker was last looked after */
    uint64_t nap_ns;       /* between looks while nothing happens */
    uint64_t told_idle_ns; /* the end of the burst after which idling was reported */
    bool is_told;          /* and that it was, under this word */
    uint64_t told_ns;      /* when it last told what no broker had taken */
};

/* --- the driver's part ------------------------------------------------------------------------------------
 */

/* The process exits and its driver goes down: from then on the keeper stays out. */
static bool enter_driver(void) {
    __atomic_store_n(&SHARES->is_keeper_inside, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&SHARES->is_ending, __ATOMIC_SEQ_CST))
        return true;
    __atomic_store_n(&SHARES->is_keeper_inside, 0, __ATOMIC_SEQ_CST);
    return false;
}

static void leave_driver(void) {
    __atomic_store_n(&SHARES->is_keeper_inside, 0, __ATOMIC_SEQ_CST);
}

static bool look(bool is_end_likely) {
    bool is_unfinished = true;
    if (enter_driver()) {
        is_unfinished = plimsoll_bursts_look(is_end_likely);
        leave_driver();
    }
    return is_unfinished;
}

/* --- shut -------------------------------------------------------------------------------------------------
 */

static void nap(uint64_t duration_ns) {
    struct timespec left = {.tv_nsec = (long)duration_ns};
    nanosleep(&left, NULL);
}

/* How long until the work under way should be done. */
static uint64_t left_ns(void) {
    uint64_t now_ns = plimsoll_now_ns(), latest_ns = now_ns;
    pthread_mutex_lock(&SHARES->lock);
    for (int i = 0; i < PLIMSOLL_METERS; i++)
        if (SHARES->meters[i].is_under_way && plimsoll_burst_due_ns(&SHARES->meters[i]) > latest_ns)
            latest_ns = plimsoll_burst_due_ns(&SHARES->meters[i]);
    pthread_mutex_unlock(&SHARES->lock);
    return latest_ns - now_ns;
}

static bool is_still(const struct watch *watch) {
    return plimsoll_gate_word() == watch->word && !__atomic_load_n(&SHARES->is_ending, __ATOMIC_RELAXED);
}

/* What no broker took is told again. */
static void tell_owed(struct watch *watch) {
    uint64_t now_ns = plimsoll_now_ns();
    if (!plimsoll_report_is_owed() || now_ns - watch->told_ns < SEEK_NS)
        return;
    watch->told_ns = now_ns;
    plimsoll_report(watch->word);
}

/* Whether anything is unfinished; whether it seems to wait for something is told to who may launch that. */
static bool look_for_stalls(void) {
    uint64_t looked_ns = plimsoll_now_ns();
    bool is_unfinished = look(true);
    plimsoll_stalls_note(looked_ns);
    return is_unfinished;
}

/* Looks often at first; what is long overdue may take for ever. */
static void drain(struct watch *watch) {
    for (uint64_t least_ns = DRAIN_LEAST_NS; is_still(watch) && look_for_stalls();
         least_ns += least_ns / 32) {
        uint64_t step_ns = left_ns() / 4;
        step_ns = step_ns < least_ns ? least_ns : step_ns;
        nap(step_ns > DRAIN_MOST_NS ? DRAIN_MOST_NS : step_ns);
        tell_owed(watch);
    }
    if (!is_still(watch)) {
        plimsoll_stalls_note(0);
        return;
    }
    __atomic_store_n(&SHARES->drained_word, watch->word, __ATOMIC_RELEASE);
    plimsoll_report(watch->word);
}

/* --- after an opening -------------------------------------------------------------------------------------
 */

/* Under the lock, released meanwhile. */
static void cover(struct plimsoll_meter *meter) {
    unsigned epoch = SHARES->epoch;
    if (!meter->is_under_way)
        plimsoll_burst_begin(meter, plimsoll_now_ns());
    uint64_t life = meter->life;
    bool is_covered = plimsoll_mark_context(meter);
    if (meter->life != life)
        return;
    if (is_covered)
        meter->epoch = epoch;
    else
        plimsoll_burst_settle(meter, plimsoll_now_ns());
}

/* False: some context has work of which nothing is known. */
static bool cover_all(void) {
    bool is_known = true;
    pthread_mutex_lock(&SHARES->lock);
    for (int i = 0; i < PLIMSOLL_METERS; i++) {
        struct plimsoll_meter *meter = &SHARES->meters[i];
        if (meter->context && !meter->is_broken && meter->epoch != SHARES->epoch)
            cover(meter);
        is_known &= !meter->context || meter->is_broken || meter->epoch == SHARES->epoch;
    }
    pthread_mutex_unlock(&SHARES->lock);
    return is_known;
}

/* Where the driver cannot be asked, the next launch shows its stream at the gate. A program that launches
 * nothing for so long is taken for idle. */
static void learn_queued(struct watch *watch) {
    bool is_known = false;
    while (is_still(watch) && enter_driver()) {
        is_known = cover_all();
        leave_driver();
        if (is_known || plimsoll_now_ns() - watch->word_ns > EVIDENCE_NS ||
            __atomic_load_n(&SHARES->waiting, __ATOMIC_ACQUIRE) > 0)
            return;
        nap(ASK_AGAIN_NS);
    }
}

/* --- metered ----------------------------------------------------------------------------------------------
 */

/* Idle for long enough while others wait: said once after each burst. */
static void give_up_early(struct watch *watch) {
    pthread_mutex_lock(&SHARES->lock);
    uint64_t idle_ns = SHARES->idle_since_ns;
    bool is_idle = SHARES->under_way == 0;
    pthread_mutex_unlock(&SHARES->lock);
    uint64_t from_ns = idle_ns > watch->word_ns ? idle_ns : watch->word_ns;
    uint64_t long_ns = (uint64_t)__atomic_load_n(&plimsoll.gate->idle_us, __ATOMIC_RELAXED) * 1000;
    if (!is_idle || (watch->is_told && watch->told_idle_ns == idle_ns) ||
        plimsoll_now_ns() - from_ns < long_ns)
        return;
    watch->is_told = true;
    watch->told_idle_ns = idle_ns;
    plimsoll_report(watch->word);
}

/* Seldom while nothing happens, as the launching threads meter by themselves. */
static uint64_t watch_metered(struct watch *watch) {
    bool is_contended = (watch->word & PLIMSOLL_GATE_CONTENDED) != 0;
    if (look(false) || is_contended)
        watch->nap_ns = is_contended ? LOOK_NS / 2 : LOOK_NS;
    else if (watch->nap_ns < IDLE_LOOK_NS)
        watch->nap_ns *= 2;
    if (is_contended)
        give_up_early(watch);
    return watch->nap_ns;
}

/* --- the thread -------------------------------------------------------------------------------------------
 */

static void take_word(struct watch *watch, uint32_t word) {
    watch->word = word;
    watch->word_ns = plimsoll_now_ns();
    watch->is_told = false;
    watch->nap_ns = LOOK_NS;
    if (plimsoll_gate_is_lost())
        (void)plimsoll_gate_seek(word); /* before the epoch is read: it may begin another */
    pthread_mutex_lock(&SHARES->lock);
    plimsoll_gate_note(word);
    bool is_known = watch->epoch == SHARES->epoch;
    watch->epoch = SHARES->epoch;
    pthread_mutex_unlock(&SHARES->lock);
    bool is_shut = (word & PLIMSOLL_GATE_STATES) == PLIMSOLL_GATE_SHUT;
    /* At once, as the broker does not wait long for a word of work that was queued behind an open gate. */
    if (!is_known && is_shut)
        plimsoll_report(word);
    if (!is_known)
        learn_queued(watch);
    if (is_shut)
        drain(watch);
    /* The broker reads the words of those alone of whom it heard, and a metered gate holds nobody up who
     * would tell of himself: a program that comes after another, or for which an open gate was given a limit.
     */
    else if ((word & PLIMSOLL_GATE_STATES) == PLIMSOLL_GATE_METERED && plimsoll_report_is_missing())
        plimsoll_report(word);
}

/* What a broker that is back finds is looked at as under a new word. */
static void look_after_broker(struct watch *watch) {
    uint64_t now_ns = plimsoll_now_ns();
    if (now_ns - watch->sought_ns < (plimsoll_gate_is_lost() ? SEEK_NS : REST_NS))
        return;
    watch->sought_ns = now_ns;
    if (plimsoll_gate_seek(watch->word))
        take_word(watch, plimsoll_gate_word());
}

/* Returns how long it has time. What was begun before an opening is seen to its end, and so is what went
 * through a shut gate. */
static uint64_t watch_gate(struct watch *watch) {
    if ((watch->word & PLIMSOLL_GATE_STATES) == PLIMSOLL_GATE_METERED)
        return watch_metered(watch);
    bool is_shut = (watch->word & PLIMSOLL_GATE_STATES) == PLIMSOLL_GATE_SHUT;
    if (is_shut && __atomic_load_n(&SHARES->drained_word, __ATOMIC_ACQUIRE) != watch->word)
        drain(watch);
    bool is_open = (watch->word & PLIMSOLL_GATE_STATES) == PLIMSOLL_GATE_OPEN;
    if (is_open && __atomic_load_n(&SHARES->under_way, __ATOMIC_RELAXED) > 0 && look(false))
        return LOOK_NS;
    return plimsoll_report_is_owed() || plimsoll_gate_is_lost() ? SEEK_NS : REST_NS;
}

static void *keep(void *unused) {
    (void)unused;
    struct watch watch = {.word = PLIMSOLL_GATE_OPEN, .sought_ns = plimsoll_now_ns()};
    plimsoll_depth = 1; /* its calls of the driver are its own */
    prctl(PR_SET_NAME, "plimsoll");
    prctl(PR_SET_TIMERSLACK, SLACK_NS);
    while (!__atomic_load_n(&SHARES->is_ending, __ATOMIC_SEQ_CST)) {
        uint32_t word = plimsoll_gate_word();
        if (word != watch.word)
            take_word(&watch, word);
        look_after_broker(&watch);
        tell_owed(&watch);
        plimsoll_gate_sleep(watch.word, watch_gate(&watch));
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
