/* The kernel alone shows that a process is dead: by /proc/PID/stat, else by a signal 0, which is not
 * delivered.
 *
 * A process holds GPU memory as long as it has the driver's files open. The kernel closes them (exit_files,
 * and the deferred fput in exit_task_work) before a thread becomes a zombie (exit_notify), and it lowers
 * num_threads when the thread has come that far. So a zombie that is the last thread of its process holds
 * nothing, while a zombie with other living threads may. Only a child that inherited the files
 * without an exec keeps the memory. The broker's measurements then show in whose name that memory stands.
 *
 * A process counts as living where this process cannot judge it. That is so in another PID or time namespace,
 * because the same numbers mean another process, or another moment, there. A process without /proc judges
 * nobody.
 */
#include "memory/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"

struct process {
    char state;
    uint64_t threads;
    uint64_t started; /* clock ticks since the machine's boot; one more in a namespace shifted by parts of a
                         tick */
};

/* Reads the beginning of a file of /proc; false where that cannot be done. */
static bool read_text(const char *path, char *text, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t length = read(file, text, size - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    return length > 0;
}

/* Field `number` of a stat line, counted after the last ')': the process name before it may contain
 * anything. */
static const char *field_of(const char *text, int number) {
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < number; field++)
        at = strchr(at + 1, ' ');
    return at ? at + 1 : "";
}

/* The kernel shifts start times by the time namespace of the reader. */
static uint64_t shift_ticks(void) {
    int64_t tick_ns = 1000000000 / sysconf(_SC_CLK_TCK);
    int64_t ticks = plimsoll_clock.boot_ns / tick_ns;
    return (uint64_t)(ticks - (plimsoll_clock.boot_ns % tick_ns < 0));
}

static bool read_process(const char *path, struct process *found) {
    char text[1024];
    if (!read_text(path, text, sizeof(text)))
        return false;
    *found = (struct process){.state = *field_of(text, 3),
                              .threads = strtoull(field_of(text, 20), NULL, 10),
                              .started = strtoull(field_of(text, 22), NULL, 10) - shift_ticks()};
    return found->state != 0 && found->started != 0;
}

uint64_t plimsoll_own_owner(void) {
    struct process self = {0};
    read_process("/proc/self/stat", &self);
    return (uint32_t)getpid() | (self.started & UINT32_MAX) << 32;
}

static uint64_t inode_of(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 ? status.st_ino & UINT32_MAX : 0;
}

/* The namespaces of this process; 0 where /proc is missing. Time namespaces came with Linux 5.6; before, all
 * processes read one clock. */
static uint64_t own_namespaces(void) {
    return inode_of("/proc/self/ns/pid") | inode_of("/proc/self/ns/time") << 32;
}

uint64_t plimsoll_namespaces_for(uint64_t owner) {
    return own_namespaces() ^ owner;
}

/* NSpid lists the pids of this process from the namespace of the mounted /proc inwards. A single one means
 * that /proc shows pids as this process sees them. */
static bool is_proc_ours(void) {
    static const char label[] = "\nNSpid:\t";
    char text[2048];
    const char *line = read_text("/proc/self/status", text, sizeof(text)) ? strstr(text, label) : NULL;
    const char *pids = line ? line + sizeof(label) - 1 : NULL;
    return pids && pids[strcspn(pids, "\t\n")] == '\n';
}

static bool is_last_zombie(const struct process *process) {
    return (process->state == 'Z' || process->state == 'X') && process->threads <= 1;
}

/* A missing file proves nothing where /proc hides other users' processes (hidepid). A signal 0 distinguishes
 * a hidden process from none. */
static bool is_dead(uint64_t owner, bool has_proc) {
    char path[32];
    struct process found;
    uint64_t started = owner >> 32;
    snprintf(path, sizeof(path), "/proc/%u/stat", (unsigned)(uint32_t)owner);
    if (has_proc && started && read_process(path, &found))
        return (found.started & UINT32_MAX) != started || is_last_zombie(&found);
    return kill((pid_t)(uint32_t)owner, 0) != 0 && errno == ESRCH;
}

static uint64_t load(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

/* The namespaces and the /proc of this process, by which it judges others. */
struct viewpoint {
    uint64_t namespaces;
    bool has_proc;
};

static bool may_be_left_out(const struct plimsoll_slot *slot, uint64_t owner, const struct viewpoint *own) {
    bool is_judge = own->namespaces != 0 && (load(&slot->namespaces) ^ owner) == own->namespaces;
    return owner && is_judge && is_dead(owner, own->has_proc);
}

static bool find_dead(const struct plimsoll_counts *counts, unsigned self, unsigned gpu, uint64_t spare_bytes,
                      struct plimsoll_dead *dead) {
    struct viewpoint own = {0};
    bool is_known = false;
    uint64_t left_bytes = spare_bytes;
    memset(dead, 0, sizeof(*dead));
    for (uint32_t i = 0; i < plimsoll_ledger_slots(counts); i++) {
        const struct plimsoll_slot *slot = &counts->slots[i];
        uint64_t owner = load(&slot->owner), used_bytes = load(&slot->used_bytes[gpu]);
        bool has_context = load(&slot->contexts) >> gpu & 1;
        bool matters = used_bytes != 0 || has_context || (uint32_t)load(&slot->attempts) != 0;
        if (i == self || !matters)
            continue;
        if (!is_known)
            own = (struct viewpoint){own_namespaces(), is_proc_ours()};
        is_known = true;
        if (may_be_left_out(slot, owner, &own))
            dead->owners[i] = owner;
        else if (used_bytes > left_bytes)
            return false;
        else
            left_bytes -= used_bytes;
    }
    return true;
}

bool plimsoll_find_dead(const struct plimsoll_counts *counts, unsigned self, unsigned gpu,
                        uint64_t spare_bytes, struct plimsoll_dead *dead) {
    int saved = errno;
    bool has_room = find_dead(counts, self, gpu, spare_bytes, dead);
    errno = saved;
    return has_room;
}
