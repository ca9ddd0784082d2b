#include "broker/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "memory/exports.h"
#include "memory/ledger.h"
#include "memory/pools/pools.h"
#include "say.h"
#include "share/gate.h"
#include "share/work.h"

/* The function behind pthread_atfork in every glibc. Some glibc releases export the name pthread_atfork from
 * no shared library. musl has that name alone, and starts no program with a library that needs a missing one.
 */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library)
    __attribute__((weak));
extern int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
    __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

#define WAIT_MS 10000 /* for the first valid limits, and for a slot */
#define POLL_MS 5

struct directories {
    const char *limits;
    const char *counts;
    const char *problem; /* why their files cannot be used, with the remedy */
};

static bool is_container(void) {
    struct stat status;
    return stat(PLIMSOLL_CONTAINER_LIMITS_DIR, &status) == 0;
}

/* In a container only its own two directories count. Elsewhere the environment names them. False: this
 * process is not under Plimsoll. */
static bool find_directories(struct directories *found) {
    *found = (struct directories){PLIMSOLL_CONTAINER_LIMITS_DIR, PLIMSOLL_CONTAINER_COUNTS_DIR, NULL};
    if (is_container())
        return true;
    found->limits = getenv(PLIMSOLL_LIMITS_DIR_VARIABLE);
    found->counts = getenv(PLIMSOLL_COUNTS_DIR_VARIABLE);
    return found->limits && *found->limits && found->counts && *found->counts;
}

const char *plimsoll_find_limits(void) {
    struct directories found;
    return find_directories(&found) ? found.limits : NULL;
}

/* Maps a file of known size; NULL if the file is missing or shorter (touching the mapping would be a
 * SIGBUS). errno is then 0 for a shorter file. */
static void *map_file(const char *directory, const char *name, size_t size, int is_writable) {
    char path[sizeof(plimsoll.limits_dir) + 16];
    struct stat status;
    void *mapping = MAP_FAILED;
    errno = ENAMETOOLONG;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) >= sizeof(path))
        return NULL;
    int file = open(path, (is_writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (file < 0)
        return NULL;
    errno = 0;
    if (fstat(file, &status) == 0 && (uint64_t)status.st_size >= size)
        mapping = mmap(NULL, size, is_writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return mapping == MAP_FAILED ? NULL : mapping;
}

static bool is_valid_counts(const struct plimsoll_counts *counts) {
    return counts->magic == PLIMSOLL_COUNTS_MAGIC && counts->version == PLIMSOLL_VERSION &&
           counts->size == sizeof(*counts);
}

static void unmap(const struct plimsoll_limits *limits, struct plimsoll_counts *counts) {
    if (limits)
        munmap((void *)(uintptr_t)limits, sizeof(*limits));
    if (counts)
        munmap(counts, sizeof(*counts));
}

static bool is_valid_gate(const struct plimsoll_gate *gate) {
    return gate->magic == PLIMSOLL_GATE_MAGIC && gate->version == PLIMSOLL_VERSION &&
           gate->size == sizeof(*gate);
}

static bool has_share(const struct plimsoll_limits *limits) {
    for (unsigned i = 0; i < limits->gpu_count; i++)
        if (limits->gpus[i].share_pct > 0 || limits->gpus[i].limit_pct < 100)
            return true;
    return false;
}

/* A container that owns its GPUs alone is never held back. Without a gate no container is; standard error
 * reports that where a share was requested. */
static void map_gate(const char *directory, const struct plimsoll_limits *limits) {
    if (limits->flags & PLIMSOLL_FLAG_WHOLE_GPUS)
        return;
    const struct plimsoll_gate *gate = map_file(directory, PLIMSOLL_GATE_NAME, sizeof(*gate), 0);
    if (gate && is_valid_gate(gate)) {
        plimsoll_gate_follow(gate);
        return;
    }
    if (gate)
        munmap((void *)(uintptr_t)gate, sizeof(*gate));
    if (has_share(limits))
        plimsoll_fail(
            "no valid gate in %s: the compute share of this container is not enforced (the broker's log "
            "says what it could not lay out)",
            directory);
}

static const char *problem_of(int error) {
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return "the files do not exist; see the log of the broker. After a chroot, mount their directory "
               "there too. If it was removed, for instance at a logout, start this command anew";
    case EACCES:
    case EPERM:
        return "this user may not open the files; run as the broker's user, or give the broker a directory "
               "that this user may enter (plimsoll run --broker-root)";
    case EMFILE:
    case ENFILE:
        return "too many files are open; raise this program's `ulimit -n`";
    case ENAMETOOLONG:
        return "the path is too long; give the broker a shorter root";
    case 0:
        return "the files are damaged, or of another version than this library; install one version of "
               "Plimsoll, and start broker and program anew";
    default:
        return "the files cannot be mapped; see the kernel's log (dmesg)";
    }
}

/* The broker makes the file, except a broker of an earlier version. */
static struct plimsoll_exports *map_exports(const char *directory) {
    char path[sizeof(plimsoll.limits_dir) + 16];
    int length = snprintf(path, sizeof(path), "%s/%s", directory, PLIMSOLL_EXPORTS_NAME);
    int file = length < (int)sizeof(path) ? open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;
    if (file < 0)
        return NULL;
    bool is_whole = posix_fallocate(file, 0, (off_t)sizeof(struct plimsoll_exports)) == 0;
    close(file);
    return is_whole ? map_file(directory, PLIMSOLL_EXPORTS_NAME, sizeof(struct plimsoll_exports), 1) : NULL;
}

static bool map_valid(struct directories *in) {
    struct plimsoll_limits copy;
    const struct plimsoll_limits *limits = map_file(in->limits, PLIMSOLL_LIMITS_NAME, sizeof(*limits), 0);
    struct plimsoll_counts *counts =
        limits ? map_file(in->counts, PLIMSOLL_COUNTS_NAME, sizeof(*counts), 1) : NULL;
    if (!limits || !counts || !is_valid_counts(counts) || !plimsoll_limits_copy(limits, &copy)) {
        in->problem = problem_of(errno);
        if (limits && limits->magic == PLIMSOLL_LIMITS_MAGIC &&
            __atomic_load_n(&limits->generation, __ATOMIC_RELAXED) % 2)
            in->problem = "the broker ended while it wrote the limits; start the broker again";
        unmap(limits, counts);
        return false;
    }
    plimsoll.limits = limits;
    plimsoll.counts = counts;
    plimsoll.exports = map_exports(in->counts);
    plimsoll.measured = map_file(in->limits, PLIMSOLL_MEASURED_NAME, sizeof(*plimsoll.measured), 0);
    plimsoll.measures_no_process = !plimsoll.measured && errno == ENOENT;
    plimsoll_limits_store(&copy);
    map_gate(in->limits, &copy);
    return true;
}

/* Needs attach_lock. */
static enum plimsoll_attachment map_locked(struct directories *in) {
    int attachment = plimsoll.attachment;
    if (attachment != ATTACHMENT_UNKNOWN)
        return (enum plimsoll_attachment)attachment;
    plimsoll.is_verbose = getenv("PLIMSOLL_LOG") != NULL;
    attachment = ATTACHMENT_NONE;
    if (find_directories(in)) {
        snprintf(plimsoll.limits_dir, sizeof(plimsoll.limits_dir), "%s", in->limits);
        attachment = map_valid(in) ? ATTACHMENT_MAPPED : ATTACHMENT_UNKNOWN;
    }
    __atomic_store_n(&plimsoll.attachment, attachment, __ATOMIC_RELEASE);
    return (enum plimsoll_attachment)attachment;
}

enum plimsoll_attachment plimsoll_map_files(void) {
    int attachment = __atomic_load_n(&plimsoll.attachment, __ATOMIC_ACQUIRE);
    if (attachment != ATTACHMENT_UNKNOWN)
        return (enum plimsoll_attachment)attachment;
    int saved = errno;
    struct directories in = {0};
    pthread_mutex_lock(&plimsoll.attach_lock);
    enum plimsoll_attachment reached = map_locked(&in);
    pthread_mutex_unlock(&plimsoll.attach_lock);
    errno = saved;
    return reached;
}

/* In the child of a fork: forgets what the parent held, and makes every lock new. The child shares the mapped
 * files but not the slot, and claims one of its own when it attaches. It holds no GPU memory, because CUDA
 * does not survive a fork. No thread of the child holds a lock that another thread held at the fork. */
static void forget_in_child(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    plimsoll.resolve_lock = plimsoll.attach_lock = plimsoll.retry_lock = plimsoll.context_lock = fresh;
    plimsoll_clock_find(); /* the child may have entered another time namespace */
    plimsoll.is_refreshing = false;
    memset(&plimsoll.own_imports, 0, sizeof(plimsoll.own_imports)); /* zeros are an unlocked lock */
    plimsoll_holdings_reset(&plimsoll.holdings);
    plimsoll_pools_reset();
    plimsoll_shares_in_child();
    plimsoll.graphs_counted = 0;
    memset(plimsoll.contexts, 0, sizeof(plimsoll.contexts));
    memset(plimsoll.gpu_of_device, 0, sizeof(plimsoll.gpu_of_device)); /* the child may see other devices */
    plimsoll.is_announced = false;
    plimsoll_depth = 0;
    if (plimsoll.attachment == ATTACHMENT_FULL)
        plimsoll.attachment = ATTACHMENT_MAPPED;
}

static bool watch_forks(void) {
    if (__register_atfork)
        return __register_atfork(NULL, NULL, forget_in_child, &__dso_handle) == 0;
    return pthread_atfork && pthread_atfork(NULL, NULL, forget_in_child) == 0;
}

/* Needs attach_lock, and the files mapped. */
static enum plimsoll_attachment claim_slot(void) {
    uint64_t owner = plimsoll_own_owner();
    int slot = plimsoll_ledger_claim(plimsoll.counts, owner);
    if (slot < 0)
        return ATTACHMENT_MAPPED;
    plimsoll.slot = (unsigned)slot;
    plimsoll.owner = owner;
    plimsoll_exports_of_earlier_program();
    __atomic_store_n(&plimsoll.counts->slots[slot].namespaces, plimsoll_namespaces_for(owner),
                     __ATOMIC_SEQ_CST);
    if (!plimsoll.is_fork_watched)
        plimsoll.is_fork_watched = watch_forks();
    __atomic_store_n(&plimsoll.attachment, ATTACHMENT_FULL, __ATOMIC_RELEASE);
    plimsoll_note("under limits of %s, slot %d", plimsoll.limits_dir, slot);
    return ATTACHMENT_FULL;
}

static enum plimsoll_attachment attach_locked(struct directories *in) {
    enum plimsoll_attachment reached = map_locked(in);
    return reached == ATTACHMENT_MAPPED ? claim_slot() : reached;
}

static void complain(enum plimsoll_attachment reached, const struct directories *in) {
    if (reached == ATTACHMENT_UNKNOWN)
        plimsoll_fail("no valid limits after %d s, so this process gets no GPU: %s (%s)", WAIT_MS / 1000,
                      in->problem, in->limits);
    if (reached == ATTACHMENT_MAPPED)
        plimsoll_fail("all %u process slots of this container are taken, for %d s: this process gets no GPU",
                      PLIMSOLL_MAX_SLOTS, WAIT_MS / 1000);
}

/* Waits for limits, once, and for a slot. The broker clears the slots of dead processes one by one, and a
 * program that forks all the time may fill the table faster. */
static enum plimsoll_attachment wait_for_place(struct directories *in) {
    const uint64_t began_ns = plimsoll_now_ns();
    enum plimsoll_attachment reached;
    bool is_waiting;
    do {
        pthread_mutex_lock(&plimsoll.attach_lock);
        reached = attach_locked(in);
        pthread_mutex_unlock(&plimsoll.attach_lock);
        if (reached == ATTACHMENT_UNKNOWN && __atomic_load_n(&plimsoll.has_waited_in_vain, __ATOMIC_RELAXED))
            return reached;
        is_waiting = reached == ATTACHMENT_UNKNOWN || reached == ATTACHMENT_MAPPED;
        if (is_waiting)
            plimsoll_sleep_ms(POLL_MS);
    } while (is_waiting && plimsoll_now_ns() - began_ns < WAIT_MS * 1000000ull);
    complain(reached, in);
    __atomic_store_n(&plimsoll.has_waited_in_vain, reached == ATTACHMENT_UNKNOWN, __ATOMIC_RELAXED);
    return reached;
}

enum plimsoll_attachment plimsoll_attach(void) {
    int attachment = __atomic_load_n(&plimsoll.attachment, __ATOMIC_ACQUIRE);
    if (attachment == ATTACHMENT_FULL || attachment == ATTACHMENT_NONE)
        return (enum plimsoll_attachment)attachment;
    int saved = errno;
    struct directories in = {0};
    enum plimsoll_attachment reached = wait_for_place(&in);
    if (reached == ATTACHMENT_FULL) {
        plimsoll_tell_hello();
        plimsoll_tell_kept();
    }
    errno = saved;
    return reached;
}
