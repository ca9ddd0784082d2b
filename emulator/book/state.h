/* The book: the state of one emulated node, shared by every process through the file `<node file>.state`.
 *
 * What always holds:
 * - Memory has no stored total. Each process owns one slot; what a GPU has in use is the sum over the slots
 * of living processes, so a `kill -9` between any two instructions leaves nothing to mend.
 * - A slot's owner holds a POSIX record lock on the slot's byte of the file. The kernel drops it at death and
 * at exec, and F_GETLK translates the owner's pid into the asker's PID namespace, so containers may share a
 * book. Never close a descriptor of the state file: POSIX would drop the process's locks with it. A program
 *   that closes every descriptor it finds does so: it is cut off from the book, and all it asks for fails.
 * - `lock` guards memory and slots, each GPU's `clock_lock` its timeline. Both are robust: the death of a
 *   holder is handled by the next one. Order: `lock` before `clock_lock`; never two clock locks.
 * - The clock of a GPU is moved forward by whoever looks (book_advance). All processes with unfinished work
 *   take turns of `slice_ns`; since every backlog stands in the book, anyone can work out what has run by
 * now, and nobody who sleeps, stops or dies holds up the others. */
#ifndef PLIMSOLL_EMULATOR_BOOK_STATE_H
#define PLIMSOLL_EMULATOR_BOOK_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "book/node.h"

#define BOOK_MAGIC 0x314B4F4F424D4C50ull /* "PLMBOOK1" */
enum {
    BOOK_VERSION = 4,
    BOOK_MAX_SLOTS = 256, /* processes with a CUDA driver at once */
    BOOK_MAX_SPANS = 256, /* stretches remembered per process and GPU, to date completed work */
    BOOK_MAX_SAMPLES = 128,
    BOOK_MAX_EVENTS = 64,
    BOOK_NAME_BYTES = 16,
    BOOK_MAX_SHARED = 1024, /* pieces of memory that more than one process may hold */
};

/* What part of a process's memory is for: told beside the total, never counted in it. */
enum book_purpose {
    BOOK_CONTEXTS,
    BOOK_POOLED, /* reserved by pools; BOOK_POOLED_FREE of it unused */
    BOOK_POOLED_FREE,
    BOOK_GRAPHS, /* reserved by the pool for graphs */
    BOOK_MODULES,
    BOOK_PURPOSES,
};

/* What a process does in its turns. A lane runs only while those above it have nothing to run. */
enum book_lane {
    BOOK_ENDING,   /* the rest of kernels that have spun enough */
    BOOK_QUEUE,    /* all other work, in the order in which it was handed over */
    BOOK_SPINNING, /* nothing but kernels that spin: occupied, but no work */
    BOOK_LANES,
};

/* A stretch of time in which one process ran in one lane without interruption. */
struct book_span {
    uint64_t start_ns; /* on the wall (CLOCK_MONOTONIC) */
    uint64_t length_ns;
    uint64_t lane;
    uint64_t before_ns[BOOK_LANES]; /* how much the process had run before it */
};

/* What one process has and does on one GPU. */
struct book_share {
    uint64_t used_bytes;                   /* lock; contexts included */
    uint64_t peak_bytes;                   /* lock */
    uint32_t contexts;                     /* lock; NVML lists the process while this is above zero */
    uint64_t purpose_bytes[BOOK_PURPOSES]; /* atomic; parts of used_bytes */
    uint32_t working; /* clock_lock; 1 from the arrival of work until all of it is done */
    /* All below: clock_lock. */
    uint32_t spinning;              /* kernels that spin, or will as soon as the work before them is done */
    uint64_t issued_ns[BOOK_LANES]; /* device time of all work handed over so far; only grows */
    uint64_t
        ran_ns[BOOK_LANES]; /* what has run; only grows, and never past what was issued, but by spinning */
    uint64_t unfinished_ns; /* time with unfinished work, up to working_since_ns */
    uint64_t working_since_ns;
    uint64_t launches; /* kernels */
    uint64_t sample_busy_ns;
    uint64_t checked_ns; /* when its owner was last seen alive */
    uint64_t span_count; /* the latest is spans[(span_count - 1) % BOOK_MAX_SPANS] */
    struct book_span spans[BOOK_MAX_SPANS];
};

struct book_slot {
    uint32_t pid; /* lock; as its owner sees it; 0 = free */
    uint32_t reserved;
    uint64_t start_ticks;       /* lock; /proc/self/stat, field 22 */
    uint64_t pid_namespace;     /* lock; inode of /proc/self/ns/pid */
    uint64_t claimed_ns;        /* lock; atomic; CLOCK_MONOTONIC; 0 = its owner lost it */
    char name[BOOK_NAME_BYTES]; /* lock; the command, as in /proc/self/comm */
    struct book_share gpus[NODE_MAX_GPUS];
};

/* How busy a GPU was in the sample_ns before time_ns. */
struct book_sample {
    uint64_t time_ns;                    /* CLOCK_MONOTONIC, end of the stretch; 0 = never written */
    uint64_t busy_ns;                    /* spinning included, as in NVML; at most node->sample_ns */
    uint8_t process_pct[BOOK_MAX_SLOTS]; /* by slot; belongs to its owner if claimed_ns < time_ns */
};

struct book_gpu {
    uint64_t peak_bytes; /* lock; the most that living processes ever held at once, contexts included */
    pthread_mutex_t clock_lock;
    /* All below: clock_lock. */
    uint64_t clock_ns; /* up to here the timeline has been worked out */
    uint64_t busy_ns;  /* time with work running */
    uint64_t spun_ns;  /* time with nothing but kernels that spin */
    int32_t turn;      /* slot whose turn it is; -1 = none */
    uint32_t working;  /* processes with unfinished work */
    uint64_t turn_end_ns;
    uint64_t sample_start_ns, sample_busy_ns;
    uint64_t sample_count; /* the latest is samples[(sample_count - 1) % BOOK_MAX_SAMPLES] */
    struct book_sample samples[BOOK_MAX_SAMPLES];
    uint32_t lost; /* atomic; 1 = fell off the bus */
};

struct book_event {
    uint64_t sequence; /* 1, 2, …; 0 = never written */
    uint64_t time_ns;  /* CLOCK_REALTIME */
    uint64_t type;     /* nvmlEventType bit, for example 8 = XID critical error */
    uint64_t data;     /* for an XID, its number */
    uint32_t gpu;
    uint32_t reserved;
};

/* Memory held by several processes, or offered to others. */
struct book_shared {
    uint64_t id; /* never used twice; 0 = free */
    uint64_t bytes;
    uint32_t gpu;
    uint32_t owner; /* the slot that has it among its used_bytes; BOOK_MAX_SLOTS = none any more */
    uint64_t holders[BOOK_MAX_SLOTS / 64]; /* one bit per slot */
};

struct book_state {
    uint64_t magic;
    uint32_t version, size;
    uint64_t digest; /* of the node file, less its spelling */
    pthread_mutex_t lock;
    uint64_t event_count;            /* lock; the latest is events[(event_count - 1) % BOOK_MAX_EVENTS] */
    uint32_t event_signal;           /* atomic futex word; changes with event_count */
    uint32_t slots_touched;          /* lock; no slot at or past this index was ever claimed; only grows */
    uint32_t shared_touched, unused; /* lock; no row at or past the first was ever used; only grows */
    uint64_t last_shared_id;         /* lock */
    struct book_shared shared[BOOK_MAX_SHARED]; /* lock */
    struct book_event events[BOOK_MAX_EVENTS];
    struct book_gpu gpus[NODE_MAX_GPUS];
    struct book_slot slots[BOOK_MAX_SLOTS];
};

/* A process's view of the book. */
struct book {
    struct book_state *state;
    struct node_file node;
    int fd;                 /* never closed, see above */
    int slot;               /* ours; -1 = reader only */
    uint64_t claimed_ns;    /* when we claimed it */
    uint64_t device, inode; /* of the state file: fd may come to mean another one */
    bool is_file_lost;      /* atomic; it does */
};

/* CLOCK_MONOTONIC in nanoseconds: the one clock of the book. */
static inline uint64_t book_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

#endif
