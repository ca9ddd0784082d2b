/* What this process holds, by the name the driver gave it: a thread-safe map of 64-bit keys. */
#ifndef PLIMSOLL_HOLDINGS_H
#define PLIMSOLL_HOLDINGS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Keys are device pointers, array or allocation handles, contexts, pools, mapped addresses: values of one
 * kind never meet another kind's in one map, for the kind is part of the key. */
enum plimsoll_kind {
    HELD_MEMORY = 1,
    HELD_ARRAY,
    HELD_MIPMAP,
    HELD_HANDLE,
    HELD_MAPPING,
    HELD_CONTEXT,
    HELD_POOL,
    HELD_GRAPH
};

struct plimsoll_holding {
    uint64_t key;   /* what the driver calls it */
    uint64_t bytes; /* charged; for a mapping its length */
    uint64_t with;  /* the context it dies with, or 0; for a mapping the handle mapped */
    uint32_t references;
    uint32_t pool; /* index of the pool's record plus 1; 0: from none */
    int16_t gpu;   /* index in `limits`; negative: counted nowhere */
    uint8_t kind;
    uint8_t is_used; /* the place in the table is taken */
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

/* Finds a holding; false if there is none. */
bool plimsoll_holdings_get(struct plimsoll_holdings *all, enum plimsoll_kind kind, uint64_t key,
                           struct plimsoll_holding *found);

/* Removes and returns a holding; false if there is none. */
bool plimsoll_holdings_take(struct plimsoll_holdings *all, enum plimsoll_kind kind, uint64_t key,
                            struct plimsoll_holding *found);

/* Adds `change` to a holding's references. Returns true, removing it, when none is left. */
bool plimsoll_holdings_refer(struct plimsoll_holdings *all, enum plimsoll_kind kind, uint64_t key, int change,
                             struct plimsoll_holding *found);

/* Removes every holding that dies with context `with`, handing each to `gone`. */
void plimsoll_holdings_sweep(struct plimsoll_holdings *all, uint64_t with,
                             void (*gone)(const struct plimsoll_holding *));

/* In a forked child: forgets everything and makes the locks new, whoever held them in the parent. */
void plimsoll_holdings_reset(struct plimsoll_holdings *all);

#endif
