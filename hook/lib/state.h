/* The whole state of this library, in one place. */
#ifndef PLIMSOLL_STATE_H
#define PLIMSOLL_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_api.h"
#include "memory/holdings.h"
#include "hooks.h"
#include "pages.h"
#include "driver/loader.h"
#include "share/shares.h"
#include "memory/pools/pool.h"

/* The wrappers are the library's visible symbols. The compiler's flag hides all others. */
#define PLIMSOLL_EXPORT(symbol, kind) extern __typeof__(symbol) symbol __attribute__((visibility("default")));
PLIMSOLL_CUDA_HOOKS(PLIMSOLL_EXPORT)
PLIMSOLL_NVML_HOOKS(PLIMSOLL_EXPORT)

/* Any function, whatever its type: only ever called through its own type. */
typedef void (*plimsoll_function)(void);

#define PLIMSOLL_NAME_HOOK(symbol, kind) HOOK_##symbol,
#define PLIMSOLL_NAME_CALLED(symbol) CALLED_##symbol,
enum plimsoll_index {
    PLIMSOLL_CUDA_HOOKS(PLIMSOLL_NAME_HOOK) CUDA_HOOK_END,
    NVML_HOOK_FIRST = CUDA_HOOK_END - 1, /* so that the next line continues the count */
    PLIMSOLL_NVML_HOOKS(PLIMSOLL_NAME_HOOK) HOOK_END,
    CALLED_FIRST = HOOK_END - 1,
    PLIMSOLL_CUDA_CALLED(PLIMSOLL_NAME_CALLED) PLIMSOLL_NVML_CALLED(PLIMSOLL_NAME_CALLED) INDEX_END
};

enum plimsoll_library { LIBRARY_CUDA, LIBRARY_NVML, LIBRARY_END };

/* How far this process has come under its container's limits. Only rises, except in the child of a fork. */
enum plimsoll_attachment {
    ATTACHMENT_UNKNOWN, /* the process has not used a GPU yet */
    ATTACHMENT_NONE,    /* not under Plimsoll: every hook passes straight through */
    ATTACHMENT_MAPPED,  /* `limits` and `counts` are valid and mapped: the views work */
    ATTACHMENT_FULL     /* and a slot is claimed: allocations are held to the line */
};

/* A GPU of `limits` as last read. Words that change are atomic; the identity never changes. */
struct plimsoll_gpu {
    char uuid[PLIMSOLL_UUID_BYTES]; /* written before `attachment` is raised */
    unsigned char uuid_bytes[16];   /* the driver's form of the same UUID; likewise */
    uint64_t line_bytes;            /* atomic */
    uint64_t granted_bytes;         /* atomic */
    uint64_t excess_bytes;          /* atomic */
    uint64_t context_bytes;         /* atomic */
    uint64_t is_measured;           /* atomic */
};

/* A process's contexts on one GPU. This is the primary context; created ones are holdings. */
struct plimsoll_contexts {
    uint64_t heap_base;   /* context_lock; the driver's own size, plus 1; 0: not queried yet (hooks/heap.c) */
    uint64_t printf_base; /* likewise */
    uint64_t charged_bytes; /* context_lock; for the primary context */
    unsigned alive;    /* context_lock; retains under way, and 1 for the primary context while it lives */
    unsigned retained; /* context_lock; the program's retains of the primary context less its releases */
    bool is_announced; /* context_lock; the broker got a message about a context here */
    uint64_t unmeasured_since_ns; /* atomic; when a context was made, or memory imported, that nothing was
                                     charged for and that the broker has not measured yet; 0: none
                                     (memory/measured.c) */
    unsigned present;             /* context_lock; contexts that the driver made here, primary and created */
    uint64_t primary;    /* atomic, changed under context_lock; the primary context while it lives, else 0 */
    uint64_t former;     /* context_lock; the primary context that ended last, or 0 */
    uint64_t primary_id; /* context_lock; the driver's number for the primary context, which no other context
                            ever has */
};

/* The pieces of memory that this process imports from its container, or from itself: its imports of each
 * piece. Guarded by `lock`. */
struct plimsoll_own_imports {
    pthread_mutex_t lock;
    uint32_t counts[PLIMSOLL_MAX_EXPORTS];
    uint32_t marks_used;
    bool is_kept[PLIMSOLL_MAX_EXPORTS]; /* this process let go of its own piece, and imports it still */
};

/* Devices whose index in `limits` is remembered. For devices beyond it, every call queries the driver. */
#define PLIMSOLL_DEVICES 64

enum plimsoll_unknown { UNKNOWN_NONE, UNKNOWN_WRITING, UNKNOWN_WAITING };

struct plimsoll_state {
    /* look-up: written once under resolve_lock, read after an acquire of is_resolved */
    pthread_mutex_t resolve_lock;
    struct plimsoll_loader loader;       /* resolve_lock; read after is_loader_found */
    void *next_dlsym;                    /* likewise */
    void *next_dlvsym;                   /* likewise */
    int is_loader_found;                 /* atomic */
    int is_resolved[LIBRARY_END];        /* atomic */
    plimsoll_function driver[INDEX_END]; /* as the driver's library defines them; NULL where absent */
    plimsoll_function call[INDEX_END];   /* the same, or an answer of "not found"; atomic, NULL before */

    /* attachment: written under attach_lock, read after an acquire of attachment */
    pthread_mutex_t attach_lock;
    int attachment;                       /* atomic; enum plimsoll_attachment */
    const struct plimsoll_limits *limits; /* the mapping; attach_lock */
    struct plimsoll_counts *counts;       /* the mapping; attach_lock */
    struct plimsoll_exports *exports;     /* the mapping, NULL where the file cannot be had; attach_lock */
    const struct plimsoll_measured
        *measured;            /* the mapping, NULL where the file cannot be had; attach_lock */
    bool measures_no_process; /* an older broker, which writes no such file; attach_lock */
    bool has_waited_in_vain;  /* no valid limits came in time, and standard error says so; atomic */
    char limits_dir[4096];    /* attach_lock */
    uint64_t owner;           /* attach_lock */
    unsigned slot;            /* attach_lock */
    unsigned gpu_count;       /* attach_lock */
    bool is_verbose;          /* attach_lock */
    bool is_fork_watched;     /* attach_lock */
    bool is_end_watched;      /* written only by the thread that started the poller */

    /* limits as last read: written by the thread that raised is_refreshing */
    bool is_refreshing;    /* atomic */
    uint64_t generation;   /* atomic */
    uint32_t flags;        /* atomic */
    bool is_memory_routed; /* atomic; the driver's look-up was checked, and leads to the wrappers of this
                              library */
    struct plimsoll_gpu gpus[PLIMSOLL_MAX_GPUS];
    int gpu_of_device[PLIMSOLL_DEVICES]; /* atomic; 0 = not queried yet, else index + 2 (1 = not listed) */

    /* the holdings of this process, and its contexts */
    struct plimsoll_holdings holdings;       /* its shards' own locks */
    struct plimsoll_own_imports own_imports; /* its own lock */
    uint64_t extents;            /* atomic; external memory imported so far, whose extents it numbers */
    int graphs_allocate;         /* atomic; some graph may hold allocation nodes */
    struct plimsoll_pools pools; /* their own locks */
    unsigned graphs_counted;     /* atomic; executable graphs that take memory, counted for each GPU */
    pthread_mutex_t retry_lock;  /* guards no field: orders this process's threads in the turns of its slot */
    bool greens_made;            /* atomic; some green context was made */
    pthread_mutex_t context_lock;
    struct plimsoll_contexts contexts[PLIMSOLL_MAX_GPUS];

    /* compute shares */
    const struct plimsoll_gate *gate;  /* atomic; the mapping, NULL where no gate holds this container */
    const uint32_t *gate_word;         /* atomic; never NULL: the mapping's word, or our own open one */
    struct plimsoll_shares shares;     /* its own locks */
    struct plimsoll_captures captures; /* atomic */

    /* messages */
    bool is_announced;     /* atomic; KIND_HELLO went out */
    bool is_unlisted_said; /* atomic; standard error names a refusal on a GPU that is not in `limits` */
    uint64_t denied_at_ns[PLIMSOLL_MAX_GPUS]; /* atomic; of the last KIND_DENIED */
    char unknown[64];  /* the first unclassified function, looked up before attachment; unknown_state */
    int unknown_state; /* atomic; enum plimsoll_unknown */
    int unknown_count; /* atomic; count of KIND_UNKNOWN sent */
};

extern struct plimsoll_state plimsoll;

/* The depth of this thread in hooked driver calls. A driver may call its own exported functions through the
 * symbols that this library took over. Only the outermost call counts. */
extern _Thread_local unsigned plimsoll_depth __attribute__((tls_model("initial-exec")));

/* Ends a hook that has raised plimsoll_depth before its call of the driver. Returns the driver's result. */
static inline CUresult plimsoll_leave_hook(CUresult result) {
    plimsoll_depth--;
    return result;
}

static inline bool plimsoll_is_attached(void) {
    return __atomic_load_n(&plimsoll.attachment, __ATOMIC_ACQUIRE) == ATTACHMENT_FULL;
}

static inline bool plimsoll_is_whole(void) {
    return __atomic_load_n(&plimsoll.flags, __ATOMIC_RELAXED) & PLIMSOLL_FLAG_WHOLE_GPUS;
}

#endif
