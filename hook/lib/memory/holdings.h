/* What this process holds, by the name the driver gave it: a thread-safe map of 64-bit keys. */
#ifndef PLIMSOLL_HOLDINGS_H
#define PLIMSOLL_HOLDINGS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Keys are device pointers, array or allocation handles, contexts, pools, mapped addresses, places in arrays,
 * streams: values of one kind never meet another kind's in one map, for the kind is part of the key. */
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
    HELD_PRINTF
};

/* Whether a handle's memory may have other handles, in this process or elsewhere. */
enum plimsoll_sharing { SHARED_NOT, SHARED_EXPORTED, SHARED_IMPORTED };

struct plimsoll_holding {
    uint64_t key;   /* what the driver calls it */
    uint64_t bytes; /* charged; for a mapping its length, for tiles the handle mapped */
    uint64_t with;  /* what it dies with: a context, for tiles their array, or 0; for a mapping the handle */
    uint32_t references;
    uint32_t pool; /* index of the pool's record plus 1; 0: from none */
    int16_t gpu;   /* index in `limits`; negative: counted nowhere */
    uint8_t kind;
    uint8_t is_used; /* the place in the table is taken */
    uint8_t sharing; /* of a handle: enum plimsoll_sharing */
};

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

/* Remembers `holding`, replacing one of the same kind and key. False when the kernel gives no memory. */
bool plimsoll_holdings_put(struct plimsoll_holdings *all, struct plimsoll_holding holding);

/* The same, and tells what it replaced; `before->is_used` is 0 for nothing. */
bool plimsoll_holdings_replace(struct plimsoll_holdings *all, struct plimsoll_holding holding,
                               struct plimsoll_holding *before);

/* Finds a holding; false if there is none. */
bool plimsoll_holdings_get(struct plimsoll_holdings *all, enum plimsoll_kind kind, uint64_t key,
                           struct plimsoll_holding *found);

/* Removes and returns a holding; false if there is none. */
bool plimsoll_holdings_take(struct plimsoll_holdings *all, enum plimsoll_kind kind, uint64_t key,
                            struct plimsoll_holding *found);

/* Adds `change` to a holding's references. Returns true, removing it, when none is left. */
bool plimsoll_holdings_refer(struct plimsoll_holdings *all, enum plimsoll_kind kind, uint64_t key, int change,
                             struct plimsoll_holding *found);

/* Removes every holding that dies with a context, or with an array, handing each to `gone` outside the locks.
 */
void plimsoll_holdings_sweep(struct plimsoll_holdings *all, uint64_t with,
                             void (*gone)(const struct plimsoll_holding *));

/* The same for every mapping that begins in [from, end). */
void plimsoll_holdings_sweep_mappings(struct plimsoll_holdings *all, uint64_t from, uint64_t end,
                                      void (*gone)(const struct plimsoll_holding *));

/* Marks a handle as exported; imported ones stay what they are. */
void plimsoll_holdings_mark_exported(struct plimsoll_holdings *all, uint64_t handle);

/* Charges `bytes` of a shared handle that is gone to one imported on the same GPU, which may name the same
 * memory. Returns what nobody inherits: each import has one charge at most, and the largest ones stay. */
uint64_t plimsoll_holdings_bequeath(struct plimsoll_holdings *all, int gpu, uint64_t bytes);

/* In a forked child: forgets everything and makes the locks new, whoever held them in the parent. */
void plimsoll_holdings_reset(struct plimsoll_holdings *all);

#endif
