/* Open addressing with backward-shift deletion leaves no tombstones, so the table of a program that allocates
 * and frees for days stays short. Memory comes from mmap: a hook must not depend on the program's malloc,
 * which may be the very caller. The map is sharded, so that threads seldom meet. */
#include "memory/holdings.h"

#include <sys/mman.h>

#define FIRST_CAPACITY 256u

static uint64_t mixed(uint64_t key, unsigned kind) {
    uint64_t hash = (key ^ ((uint64_t)kind << 56)) * 0x9E3779B97F4A7C15ull; /* Fibonacci hashing (Knuth) */
    return hash ^ (hash >> 29);
}

static struct plimsoll_shard *shard_of(struct plimsoll_holdings *all, uint64_t hash) {
    return &all->shards[hash >> 60 & (PLIMSOLL_SHARDS - 1)];
}

static uint32_t home_of(const struct plimsoll_shard *shard, const struct plimsoll_holding *holding) {
    return (uint32_t)mixed(holding->key, holding->kind) & (shard->capacity - 1);
}

/* The place of (kind, key), or the free place where it would go. The table is never full. */
static uint32_t place_of(const struct plimsoll_shard *shard, unsigned kind, uint64_t key) {
    uint32_t mask = shard->capacity - 1;
    uint32_t at = (uint32_t)mixed(key, kind) & mask;
    while (shard->table[at].is_used && (shard->table[at].key != key || shard->table[at].kind != kind))
        at = (at + 1) & mask;
    return at;
}

static void *map_table(uint32_t capacity) {
    void *table = mmap(NULL, capacity * sizeof(struct plimsoll_holding), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return table == MAP_FAILED ? NULL : table;
}

static bool grow(struct plimsoll_shard *shard) {
    struct plimsoll_shard old = *shard;
    uint32_t capacity = old.capacity ? old.capacity * 2 : FIRST_CAPACITY;
    struct plimsoll_holding *table = map_table(capacity);
    if (!table)
        return false;
    shard->table = table;
    shard->capacity = capacity;
    for (uint32_t i = 0; i < old.capacity; i++)
        if (old.table[i].is_used)
            table[place_of(shard, old.table[i].kind, old.table[i].key)] = old.table[i];
    if (old.table)
        munmap(old.table, old.capacity * sizeof(*old.table));
    return true;
}

/* Empties place `hole` and closes the run of entries behind it. */
static void remove_at(struct plimsoll_shard *shard, uint32_t hole) {
    uint32_t mask = shard->capacity - 1;
    for (uint32_t next = (hole + 1) & mask; shard->table[next].is_used; next = (next + 1) & mask) {
        uint32_t home = home_of(shard, &shard->table[next]);
        if (((next - home) & mask) >= ((next - hole) & mask)) {
            shard->table[hole] = shard->table[next];
            hole = next;
        }
    }
    shard->table[hole].is_used = 0;
    shard->count--;
}

/* Locks the shard of (kind, key) and finds the entry; NULL if absent. The caller unlocks. */
static struct plimsoll_holding *locked_find(struct plimsoll_shard *shard, unsigned kind, uint64_t key) {
    pthread_mutex_lock(&shard->lock);
    if (!shard->capacity)
        return NULL;
    struct plimsoll_holding *entry = &shard->table[place_of(shard, kind, key)];
    return entry->is_used ? entry : NULL;
}

bool plimsoll_holdings_put(struct plimsoll_holdings *all, struct plimsoll_holding holding) {
    struct plimsoll_holding before;
    return plimsoll_holdings_replace(all, holding, &before);
}

bool plimsoll_holdings_replace(struct plimsoll_holdings *all, struct plimsoll_holding holding,
                               struct plimsoll_holding *before) {
    struct plimsoll_shard *shard = shard_of(all, mixed(holding.key, holding.kind));
    holding.is_used = 1;
    pthread_mutex_lock(&shard->lock);
    /* at most three quarters full, so that runs stay short */
    bool has_room = (shard->count + 1) * 4 <= shard->capacity * 3 || grow(shard);
    if (has_room) {
        struct plimsoll_holding *entry = &shard->table[place_of(shard, holding.kind, holding.key)];
        shard->count += !entry->is_used;
        *before = *entry;
        *entry = holding;
    }
    pthread_mutex_unlock(&shard->lock);
    return has_room;
}

bool plimsoll_holdings_get(struct plimsoll_holdings *all, enum plimsoll_kind kind, uint64_t key,
                           struct plimsoll_holding *found) {
    struct plimsoll_shard *shard = shard_of(all, mixed(key, kind));
    struct plimsoll_holding *entry = locked_find(shard, kind, key);
    if (entry)
        *found = *entry;
    pthread_mutex_unlock(&shard->lock);
    return entry != NULL;
}

bool plimsoll_holdings_take(struct plimsoll_holdings *all, enum plimsoll_kind kind, uint64_t key,
                            struct plimsoll_holding *found) {
    struct plimsoll_shard *shard = shard_of(all, mixed(key, kind));
    struct plimsoll_holding *entry = locked_find(shard, kind, key);
    if (entry) {
        *found = *entry;
        remove_at(shard, (uint32_t)(entry - shard->table));
    }
    pthread_mutex_unlock(&shard->lock);
    return entry != NULL;
}

bool plimsoll_holdings_refer(struct plimsoll_holdings *all, enum plimsoll_kind kind, uint64_t key, int change,
                             struct plimsoll_holding *found) {
    struct plimsoll_shard *shard = shard_of(all, mixed(key, kind));
    struct plimsoll_holding *entry = locked_find(shard, kind, key);
    bool is_last = false;
    if (entry) {
        entry->references = (uint32_t)((int64_t)entry->references + change);
        *found = *entry;
        is_last = entry->references == 0;
        if (is_last)
            remove_at(shard, (uint32_t)(entry - shard->table));
    }
    pthread_mutex_unlock(&shard->lock);
    return is_last;
}

/* The aim of a sweep: holdings that die with `from`, or mappings that begin in [from, end). */
struct sought {
    bool (*matches)(const struct plimsoll_holding *holding, const struct sought *sought);
    uint64_t from, end;
};

static bool dies_with(const struct plimsoll_holding *holding, const struct sought *sought) {
    return holding->kind != HELD_MAPPING && holding->with == sought->from && sought->from != 0;
}

static bool begins_within(const struct plimsoll_holding *holding, const struct sought *sought) {
    return holding->kind == HELD_MAPPING && holding->key >= sought->from && holding->key < sought->end;
}

#define BATCH 32u

/* Removes up to a batch of matching holdings. A smaller result means that none is left. */
static unsigned take_batch(struct plimsoll_shard *shard, const struct sought *sought,
                           struct plimsoll_holding *batch) {
    unsigned count = 0;
    pthread_mutex_lock(&shard->lock);
    /* a removal may move a later entry into this place: check the place again before going on */
    for (uint32_t i = 0; i < shard->capacity && count < BATCH;) {
        if (shard->table[i].is_used && sought->matches(&shard->table[i], sought)) {
            batch[count++] = shard->table[i];
            remove_at(shard, i);
        } else {
            i++;
        }
    }
    pthread_mutex_unlock(&shard->lock);
    return count;
}

static void sweep(struct plimsoll_holdings *all, struct sought sought,
                  void (*gone)(const struct plimsoll_holding *)) {
    struct plimsoll_holding batch[BATCH];
    for (unsigned i = 0; i < PLIMSOLL_SHARDS; i++) {
        unsigned count;
        do {
            count = take_batch(&all->shards[i], &sought, batch);
            for (unsigned at = 0; at < count; at++)
                gone(&batch[at]);
        } while (count == BATCH);
    }
}

void plimsoll_holdings_sweep(struct plimsoll_holdings *all, uint64_t with,
                             void (*gone)(const struct plimsoll_holding *)) {
    sweep(all, (struct sought){.matches = dies_with, .from = with}, gone);
}

void plimsoll_holdings_sweep_mappings(struct plimsoll_holdings *all, uint64_t from, uint64_t end,
                                      void (*gone)(const struct plimsoll_holding *)) {
    sweep(all, (struct sought){.matches = begins_within, .from = from, .end = end}, gone);
}

bool plimsoll_holdings_mark_exported(struct plimsoll_holdings *all, enum plimsoll_kind kind, uint64_t key,
                                     uint16_t piece) {
    struct plimsoll_shard *shard = shard_of(all, mixed(key, kind));
    struct plimsoll_holding *entry = locked_find(shard, kind, key);
    bool is_marked = entry && plimsoll_may_become_piece(entry);
    if (is_marked) {
        entry->sharing = SHARED_EXPORTED;
        entry->piece = piece;
    }
    pthread_mutex_unlock(&shard->lock);
    return is_marked;
}

void plimsoll_holdings_reset(struct plimsoll_holdings *all) {
    for (unsigned i = 0; i < PLIMSOLL_SHARDS; i++) {
        /* the table may have been half-way through growing: it stays mapped, a few pages once per fork */
        all->shards[i] = (struct plimsoll_shard){.lock = PTHREAD_MUTEX_INITIALIZER};
    }
}
