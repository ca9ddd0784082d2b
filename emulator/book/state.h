/* The book: the state of one emulated node, shared by every process through the file `<node file>.state`.
 *
 * Invariants:
 * - Memory has no stored total. Each process owns one slot, and the use of a GPU is the sum over the slots of
 *   living processes. So a `kill -9` between any two instructions leaves nothing to repair.
 * - A slot's owner holds a POSIX record lock on the slot's byte of the file. The kernel drops the lock at
 * death and at exec. F_GETLK translates the owner's pid into the caller's PID namespace, so containers may
 * share a book. Never close a descriptor of the state file: POSIX would drop the process's locks with it. A
 * program that closes all its descriptors does so; the book then refuses all its calls.
 * - `lock` guards memory and slots, and each GPU's `clock_lock` guards the GPU's timeline. Both are robust:
 * the next holder handles the death of the last one. Take `lock` before `clock_lock`, and never two clock
 * locks.
 * - Any process may move the clock of a GPU forward (timeline_advance). Processes with unfinished work take
 *   turns of `slice_ns`. Every backlog is in the book, so any process can compute the work that has run by
 * now, and a process that sleeps, stops or dies blocks no other. */
#ifndef PLIMSOLL_EMULATOR_BOOK_STATE_H
#define PLIMSOLL_EMULATOR_BOOK_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "book/clock.h"
#include "book/node/node.h"

#define BOOK_MAGIC 0x314B4F4F424D4C50ull /* "PLMBOOK1" */
enum {
    BOOK_VERSION = 8,
    BOOK_MAX_SLOTS = 256,  /* processes with a CUDA driver at once */
    BOOK_MAX_SPANS = 256,  /* stretches remembered per process and GPU, to date completed work */
    BOOK_MAX_TRAFFIC = 64, /* stretches of memory traffic that wait, per process and GPU */
    BOOK_MAX_SAMPLES = 128,
    BOOK_MAX_EVENTS = 64,
    BOOK_NAME_BYTES = 16,
    BOOK_MAX_SHARED = 1024, /* pieces of memory that more than one process may hold */
    BOOK_MAX_LIMITS = 1024, /* control groups with a limit, per GPU */
    BOOK_CGROUP_DEPTH = 12, /* a kubelet's container is six groups deep */
};

/* Purposes of a process's memory. Their bytes are shown beside the total and never added to it. */
enum book_purpose {
    BOOK_CONTEXTS,
    BOOK_POOLED, /* reserved by pools; BOOK_POOLED_FREE is the unused part */
    BOOK_POOLED_FREE,
    BOOK_GRAPHS, /* reserved by the pool for graphs */
    BOOK_MODULES,
    BOOK_PURPOSES,
};

/* Faults of a GPU's hardware that the book's tool injects. 0 means none. */
enum book_fault {
    BOOK_ECC,          /* uncorrected errors since the last reset */
    BOOK_RETIRED,      /* 1 = a page is retired at the next reset */
    BOOK_REMAP,        /* 1 = a row is remapped at the next reset */
    BOOK_REMAP_FAILED, /* 1 = a row could not be remapped */
    BOOK_RECOVERY,     /* NVML_GPU_RECOVERY_ACTION_* */
    BOOK_CLOCKS,       /* nvmlClocksEventReason* bits */
    BOOK_FAULTS,
};

/* Kinds of work that a process runs in its turns. A lane runs only while all lanes above it are empty. */
enum book_lane {
    BOOK_ENDING,   /* the remaining run time of kernels that have stopped spinning */
    BOOK_QUEUE,    /* all other work, in order of submission */
    BOOK_SPINNING, /* only kernels that spin: the GPU is occupied without doing work */
    BOOK_LANES,
};

/* A stretch of time in which one process ran in one lane without interruption. */
struct book_span {
    uint64_t start_ns; /* CLOCK_MONOTONIC */
    uint64_t length_ns;
    uint64_t lane;
    uint64_t before_ns[BOOK_LANES]; /* run time of each lane before this stretch */
};

/* A part of a process's queue in which device memory is read or written all the time: copies and fills. */
struct book_traffic {
    uint64_t begin_ns, end_ns; /* in run time of the queue, as ran_ns[BOOK_QUEUE] */
};

/* Memory and work of one process on one GPU. */
struct book_share {
    uint64_t used_bytes;                   /* lock; contexts included */
    uint64_t peak_bytes;                   /* lock */
    uint32_t contexts;                     /* lock; NVML lists the process while this count is above zero */
    uint64_t purpose_bytes[BOOK_PURPOSES]; /* atomic; parts of used_bytes */
    uint32_t working; /* clock_lock; 1 from the arrival of work until all of it is done */
    /* All below: clock_lock. */
    uint32_t spinning; /* kernels that spin, or will spin as soon as the work before them is done */
    uint64_t issued_ns[BOOK_LANES]; /* device time of all work submitted so far; only grows */
    uint64_t ran_ns[BOOK_LANES];    /* device time that has run; exceeds issued_ns only by spinning */
    uint64_t unfinished_ns;         /* time with unfinished work, up to working_since_ns */
    uint64_t working_since_ns;
    uint64_t launches; /* kernels */
    uint64_t sample_busy_ns, sample_traffic_ns;
    uint64_t checked_ns; /* time of the last check that found the owner alive */
    uint64_t span_count; /* the latest is spans[(span_count - 1) % BOOK_MAX_SPANS] */
    struct book_span spans[BOOK_MAX_SPANS];
    uint64_t traffic_begun, traffic_ended;         /* counts; those that have not ended wait or run */
    struct book_traffic traffic[BOOK_MAX_TRAFFIC]; /* number n is traffic[n % BOOK_MAX_TRAFFIC] */
};

/* A process's part in NVIDIA's Multi-Process Service; see mps.h. */
struct book_mps {
    uint32_t is_server;         /* lock */
    uint32_t server;            /* lock; atomic; of a client: the server's slot, plus 1; 0 = no client */
    uint64_t server_claimed_ns; /* lock; a later process in the server's slot has another value */
    uint64_t pipe_device, pipe_inode; /* lock; of a server: its directory */
};

struct book_slot {
    uint32_t pid; /* lock; in the owner's PID namespace; 0 = free */
    uint32_t reserved;
    uint64_t start_ticks;                /* lock; /proc/self/stat, field 22 */
    uint64_t pid_namespace;              /* lock; inode of /proc/self/ns/pid */
    uint64_t claimed_ns;                 /* lock; atomic; CLOCK_MONOTONIC; 0 = the owner lost the slot */
    char name[BOOK_NAME_BYTES];          /* lock; the command, as in /proc/self/comm */
    uint64_t cgroups[BOOK_CGROUP_DEPTH]; /* lock; see cgroup.h; read at the claim, and again at each charge
                                            below a limit */
    struct book_mps mps;
    struct book_share gpus[NODE_MAX_GPUS];
};

/* Utilisation of a GPU in the sample_ns before time_ns. */
struct book_sample {
    uint64_t time_ns;                    /* CLOCK_MONOTONIC, end of the stretch; 0 = never written */
    uint64_t busy_ns;                    /* spinning included, as in NVML; at most node->sample_ns */
    uint64_t traffic_ns;                 /* the part in which memory was read or written */
    uint8_t process_pct[BOOK_MAX_SLOTS]; /* by slot; belongs to the slot's owner if claimed_ns < time_ns */
    uint8_t process_traffic_pct[BOOK_MAX_SLOTS];
};

struct book_gpu {
    uint64_t peak_bytes; /* lock; the most bytes that living processes ever held at once, contexts included */
    pthread_mutex_t clock_lock;
    /* All below: clock_lock. */
    uint64_t clock_ns; /* the timeline is computed up to this time */
    uint64_t busy_ns;  /* time with work running */
    uint64_t spun_ns;  /* time with nothing but kernels that spin */
    int32_t turn;      /* the slot that has the turn; -1 = none */
    uint32_t working;  /* processes with unfinished work */
    uint64_t turn_end_ns;
    uint64_t sample_start_ns, sample_busy_ns, sample_traffic_ns;
    uint64_t sample_count; /* the latest is samples[(sample_count - 1) % BOOK_MAX_SAMPLES] */
    struct book_sample samples[BOOK_MAX_SAMPLES];
    uint32_t lost;                /* atomic; 1 = the GPU fell off the bus */
    uint32_t ended;               /* atomic; 1 = an administrator ended the MIG instance */
    uint64_t faults[BOOK_FAULTS]; /* atomic */
    uint64_t reset_ns;            /* atomic; CLOCK_MONOTONIC of the last reset; 0 = none */
};

struct book_event {
    uint64_t sequence; /* 1, 2, …; 0 = never written */
    uint64_t time_ns;  /* CLOCK_REALTIME */
    uint64_t type;     /* nvmlEventType bit, for example 8 = XID critical error */
    uint64_t data;     /* for an XID, its number */
    uint32_t gpu;      /* a card, or the MIG instance that the event is about */
    uint32_t reserved;
};

/* Memory held by several processes, or offered to others. */
struct book_shared {
    uint64_t id; /* never used twice; 0 = free */
    uint64_t bytes;
    uint32_t gpu;
    uint32_t owner; /* the slot whose used_bytes include this memory; BOOK_MAX_SLOTS = no slot's do */
    uint64_t holders[BOOK_MAX_SLOTS / 64]; /* one bit per slot */
};

/* The limits of a control group on one GPU; see limits.h. */
struct book_limit {
    uint64_t group; /* see cgroup.h; 0 = free */
    uint64_t soft_bytes, hard_bytes;
    uint32_t gpu, unused;
};

/* See call_faults.h. */
struct book_call_fault {
    char call[64];            /* the beginning of the names of the functions that suffer */
    uint32_t length;          /* of `call`; atomic; 0 = no fault */
    uint32_t error, delay_ms; /* written while length is 0 */
};

struct book_state {
    uint64_t magic;
    uint32_t version, size;
    uint64_t digest; /* digest of the node file's values */
    pthread_mutex_t lock;
    uint64_t event_count;   /* lock; the latest is events[(event_count - 1) % BOOK_MAX_EVENTS] */
    uint32_t event_signal;  /* atomic futex word; changes with event_count */
    uint32_t slots_touched; /* lock; no slot at or past this index was ever claimed; only grows */
    uint32_t shared_touched, limits_touched;    /* lock; no row at or past them was ever used; only grow */
    uint64_t last_shared_id;                    /* lock */
    struct book_shared shared[BOOK_MAX_SHARED]; /* lock */
    struct book_limit limits[BOOK_MAX_LIMITS];  /* lock */
    struct book_event events[BOOK_MAX_EVENTS];
    struct book_gpu gpus[NODE_MAX_GPUS];
    struct book_slot slots[BOOK_MAX_SLOTS];
    struct book_call_fault call_faults[NODE_MAX_GPUS];
};

/* A process's view of the book. */
struct book {
    struct book_state *state;
    struct node_file node;
    int fd;                 /* never closed, see above */
    int slot;               /* this process's slot; -1 = this process only reads */
    uint64_t claimed_ns;    /* time at which this process claimed the slot */
    uint64_t device, inode; /* identify the state file: the program may close fd and reuse its number */
    bool is_file_lost;      /* atomic; true once fd no longer means the state file */
};

#endif
