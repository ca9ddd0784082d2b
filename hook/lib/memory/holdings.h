/* Holdings: what this process holds, by the driver's name for it. A thread-safe map of 64-bit keys. */
#ifndef PLIMSOLL_HOLDINGS_H
#define PLIMSOLL_HOLDINGS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Keys are device pointers, array or allocation handles, contexts, pools, mapped addresses, places in arrays,
 * and streams. The kind is part of the key, so equal values of two kinds do not collide. */
enum plimsoll_kind {
    HELD_MEMORY = 1,
    HELD_ARRAY,
    HELD_MIPMAP,
    HELD_HANDLE,
    HELD_MAPPING,
    HELD_TILES,
    HELD_CONTEXT,
    HELD_POOL,
    HELD_GRAPH,
    HELD_CAPTURE,
    HELD_HEAP,
    HELD_PRINTF,
    HELD_EXTERNAL, /* external memory; `bytes` is the number of its HELD_EXTENT */
    HELD_EXTENT    /* the memory behind it, as long as the program has it or a part of it mapped */
};

/* Whether a holding's memory crosses between processes. SHARED_PART: a part of an extent, whose number is in
 * `bytes`. */
enum plimsoll_sharing { SHARED_NOT, SHARED_EXPORTED, SHARED_IMPORTED, SHARED_PART };

struct plimsoll_holding {
    uint64_t key;   /* the driver's name for the holding */
    uint64_t bytes; /* charged; for a mapping its length, for tiles the mapped handle */
    uint64_t with;  /* the context that the holding dies with, for tiles their array, or 0; for a mapping the
                       handle */
    uint32_t references;
    uint32_t pool; /* index of the pool's record plus 1; 0: not from a pool */
    int16_t gpu;   /* index in `limits`; negative: counted nowhere */
    uint8_t kind;
    uint8_t is_used; /* the place in the table is taken */
    uint8_t sharing; /* enum plimsoll_sharing */
    uint16_t piece;  /* index in `exports` plus 1, while SHARED_EXPORTED or _IMPORTED; 0: not there */
};

/* Whether a holding, which is in this process's word, is no piece yet: own memory, or an import of memory
 * that no process of this container exported. */
static inline bool plimsoll_may_become_piece(const struct plimsoll_holding *holding) {
    return holding->sharing == SHARED_NOT || (holding->sharing == SHARED_IMPORTED && !holding->piece);
}

#define PLIMSOLL_SHARDS 16

struct plimsoll_shard {
    pthread_mutex_t lock;           /* guards the fields below; never held across a driver call */
    struct plimsoll_holding *table; /* open addressing, capacity a power of two; mmap'd */
    uint32_t capacity;
    uint32_t count;
};

/* All zeros is the empty map: glibc's PTHREAD_MUTEX_INITIALIZER is all zeros too. */
struct plimsoll_holdings {
    struct plimsoll_shard shards[PLIMSOLL_SHARDS];
};

/* Remembers `holding`, and replaces a holding of the same kind and key. False when the kernel gives no
 * memory. */
bool plimsoll_holdings_put(struct plimsoll_holdings *all, struct plimsoll_holding holding);

/* The same, and returns the replaced holding in `before`; `before->is_used` is 0 if there was none. */
bool plimsoll_holdings_replace(struct plimsoll_holdings *all, struct plimsoll_holding holding,
                               struct plimsoll_holding *before);

/* Finds a holding; false if there is none. */
bool plimsoll_holdings_get(struct plimsoll_holdings *all, enum plimsoll_kind kind, uint64_t key,
                           struct plimsoll_holding *found);

/* Removes and returns a holding; false if there is none. */
bool plimsoll_holdings_take(struct plimsoll_holdings *all, enum plimsoll_kind kind, uint64_t key,
                            struct plimsoll_holding *found);

/* Adds `change` to a holding's references. When none is left, removes the holding and returns true. */
bool plimsoll_holdings_refer(struct plimsoll_holdings *all, enum plimsoll_kind kind, uint64_t key, int change,
                             struct plimsoll_holding *found);

/* Removes every holding that dies with a context or an array, and passes each to `gone` outside the locks. */
void plimsoll_holdings_sweep(struct plimsoll_holdings *all, uint64_t with,
                             void (*gone)(const struct plimsoll_holding *));

/* The same for every mapping that begins in [from, end). */
void plimsoll_holdings_sweep_mappings(struct plimsoll_holdings *all, uint64_t from, uint64_t end,
                                      void (*gone)(const struct plimsoll_holding *));

/* Marks a holding as exported as `piece`. False if it is gone or a piece already. */
bool plimsoll_holdings_mark_exported(struct plimsoll_holdings *all, enum plimsoll_kind kind, uint64_t key,
                                     uint16_t piece);

/* In a forked child: forgets everything and makes the locks new, whichever threads held them in the
 * parent. */
void plimsoll_holdings_reset(struct plimsoll_holdings *all);

#endif
