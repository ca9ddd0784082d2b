/* An importer sets its bit and then reads the piece's state. An exporter stores the state and then reads the
 * bits. So at least one of them sees the other: either the piece is orphaned with the bit set, and counts, or
 * the importer learns that it came too late, and counts the memory itself. A piece that is orphaned gets no
 * new imports, and once nobody imports it, its place may be taken by another one. */
#include "memory/exports.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/ledger.h"
#include "state.h"

#define WORD_BITS 64u
#define MARKS 64u /* the numbers of signals, which are a mark's second half */

/* glibc declares these with _GNU_SOURCE alone. */
#ifndef F_SETOWN_EX
#define F_SETOWN_EX 15
#define F_GETOWN_EX 16
#define F_OWNER_PID 1
struct f_owner_ex {
    int type;
    pid_t pid;
};
#endif
#ifndef F_SETSIG
#define F_SETSIG 10
#define F_GETSIG 11
#endif

static uint64_t stirred(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
    return hash ^ (hash >> 32);
}

static uint64_t finished(uint64_t hash) {
    return hash ? hash : 1; /* 0 is no key */
}

uint64_t plimsoll_key_of_bytes(const void *bytes, size_t size) {
    uint64_t hash = size, word;
    for (size_t at = 0; at + sizeof(word) <= size; at += sizeof(word)) {
        memcpy(&word, (const char *)bytes + at, sizeof(word));
        hash = stirred(hash, word);
    }
    return finished(hash);
}

static uint64_t key_of_mark(pid_t pid, int mark) {
    return finished(stirred(stirred(1, (uint64_t)pid), (uint64_t)mark));
}

static uint64_t key_of_inode(const struct stat *status) {
    return finished(stirred(stirred(2, status->st_dev), status->st_ino));
}

/* NVIDIA's driver exports memory as an open file of a device, and all such files have one inode. What two
 * processes that have the same open file see alike is its owner for signals, and the signal. Nobody sends one
 * without O_ASYNC. */
uint64_t plimsoll_key_of_file(int file) {
    struct stat status;
    struct f_owner_ex owner = {0};
    if (fstat(file, &status) != 0)
        return 0;
    if (!S_ISCHR(status.st_mode))
        return key_of_inode(&status);
    int mark = fcntl(file, F_GETSIG);
    bool is_marked = mark > 0 && fcntl(file, F_GETOWN_EX, &owner) == 0 && owner.type == F_OWNER_PID;
    return is_marked && owner.pid > 0 ? key_of_mark(owner.pid, mark) : 0;
}

static uint64_t load(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static struct plimsoll_export *piece_at(uint32_t place) {
    return &plimsoll.exports->exports[place];
}

static void orphan(struct plimsoll_export *piece) {
    __atomic_store_n(&piece->state, PLIMSOLL_EXPORT_ORPHANED, __ATOMIC_SEQ_CST);
}

static uint32_t touched(void) {
    uint32_t count = __atomic_load_n(&plimsoll.exports->touched, __ATOMIC_SEQ_CST);
    return count < PLIMSOLL_MAX_EXPORTS ? count : PLIMSOLL_MAX_EXPORTS;
}

static bool is_live(const struct plimsoll_export *piece, uint64_t key) {
    return __atomic_load_n(&piece->state, __ATOMIC_SEQ_CST) == PLIMSOLL_EXPORT_LIVE &&
           load(&piece->key) == key;
}

/* The place of the live piece with this key; -1 if there is none. */
static int place_of(uint64_t key) {
    for (uint32_t place = 0; key && plimsoll.exports && place < touched(); place++)
        if (is_live(piece_at(place), key))
            return (int)place;
    return -1;
}

/* Marks a file: as `known`, the key of the same memory's earlier export, or by a mark that no live piece has.
 * The marks are used in turn, because a file of a piece that ended may still be under way. Needs the lock. */
static uint64_t mark_file(int file, uint64_t known) {
    struct f_owner_ex owner = {.type = F_OWNER_PID, .pid = getpid()};
    for (uint32_t tried = 0; tried < MARKS; tried++) {
        int mark = 1 + (int)(plimsoll.own_imports.marks_used++ % MARKS);
        uint64_t key = key_of_mark(owner.pid, mark);
        if (known ? key == known : place_of(key) < 0)
            return fcntl(file, F_SETOWN_EX, &owner) == 0 && fcntl(file, F_SETSIG, mark) == 0 ? key : 0;
    }
    return 0;
}

static bool is_imported(uint32_t place) {
    for (uint32_t slot = 0; slot < plimsoll_ledger_slots(plimsoll.counts); slot++)
        if (load(&plimsoll.exports->imports[slot].words[place / WORD_BITS]) >> place % WORD_BITS & 1)
            return true;
    return false;
}

static bool is_free(uint32_t place) {
    uint32_t state = __atomic_load_n(&piece_at(place)->state, __ATOMIC_SEQ_CST);
    return state == PLIMSOLL_EXPORT_ORPHANED ? !is_imported(place)
                                             : state == 0 && load(&piece_at(place)->owner) == 0;
}

static void raise_touched(uint32_t least) {
    uint32_t seen = __atomic_load_n(&plimsoll.exports->touched, __ATOMIC_SEQ_CST);
    while (seen < least && !__atomic_compare_exchange_n(&plimsoll.exports->touched, &seen, least, false,
                                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

/* The state is claimed first, from a value that means that the place is free, to 0 under this owner. */
static bool is_claimed(struct plimsoll_export *piece) {
    uint32_t orphaned = PLIMSOLL_EXPORT_ORPHANED;
    uint64_t owner = 0;
    if (__atomic_compare_exchange_n(&piece->state, &orphaned, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        __atomic_store_n(&piece->owner, plimsoll.owner, __ATOMIC_SEQ_CST);
        return true;
    }
    return orphaned == 0 && __atomic_compare_exchange_n(&piece->owner, &owner, plimsoll.owner, false,
                                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* The piece plus 1; 0 if all places are taken. */
static uint16_t enter(int gpu, uint64_t bytes, uint64_t key) {
    for (uint32_t place = 0; place < PLIMSOLL_MAX_EXPORTS; place++) {
        struct plimsoll_export *piece = piece_at(place);
        if (!is_free(place) || !is_claimed(piece))
            continue;
        __atomic_store_n(&piece->bytes, bytes, __ATOMIC_RELAXED);
        __atomic_store_n(&piece->gpu, (uint32_t)gpu, __ATOMIC_RELAXED);
        __atomic_store_n(&piece->key, key, __ATOMIC_SEQ_CST);
        __atomic_store_n(&piece->state, PLIMSOLL_EXPORT_LIVE, __ATOMIC_SEQ_CST);
        raise_touched(place + 1);
        return (uint16_t)(place + 1);
    }
    return 0;
}

static bool is_held(enum plimsoll_kind kind, uint64_t name, struct plimsoll_holding *held) {
    return plimsoll.exports && plimsoll_holdings_get(&plimsoll.holdings, kind, name, held) &&
           held->gpu >= 0 && (held->sharing == SHARED_EXPORTED || plimsoll_may_become_piece(held));
}

/* Needs the lock. */
static void enter_held(const struct plimsoll_holding *held, uint64_t key) {
    uint16_t piece =
        key && plimsoll_may_become_piece(held) && place_of(key) < 0 ? enter(held->gpu, held->bytes, key) : 0;
    if (piece && !plimsoll_holdings_mark_exported(&plimsoll.holdings, (enum plimsoll_kind)held->kind,
                                                  held->key, piece))
        orphan(piece_at(piece - 1u)); /* another thread freed it */
}

void plimsoll_exported(enum plimsoll_kind kind, uint64_t name, uint64_t key) {
    struct plimsoll_holding held;
    pthread_mutex_lock(&plimsoll.own_imports.lock);
    if (is_held(kind, name, &held))
        enter_held(&held, key);
    pthread_mutex_unlock(&plimsoll.own_imports.lock);
}

void plimsoll_exported_file(enum plimsoll_kind kind, uint64_t name, int file) {
    struct plimsoll_holding held;
    struct stat status;
    pthread_mutex_lock(&plimsoll.own_imports.lock);
    if (is_held(kind, name, &held) && fstat(file, &status) == 0)
        enter_held(&held, S_ISCHR(status.st_mode)
                              ? mark_file(file, held.piece ? load(&piece_at(held.piece - 1u)->key) : 0)
                              : key_of_inode(&status));
    pthread_mutex_unlock(&plimsoll.own_imports.lock);
}

static uint64_t *word_of(uint32_t place) {
    return &plimsoll.exports->imports[plimsoll.slot].words[place / WORD_BITS];
}

static uint64_t bit_of(uint32_t place) {
    return 1ull << place % WORD_BITS;
}

/* Needs the lock. */
static void drop_import(uint32_t place) {
    if (--plimsoll.own_imports.counts[place] == 0)
        __atomic_fetch_and(word_of(place), ~bit_of(place), __ATOMIC_SEQ_CST);
}

uint16_t plimsoll_import_begin(uint64_t key) {
    pthread_mutex_lock(&plimsoll.own_imports.lock);
    int place = place_of(key);
    if (place >= 0) {
        plimsoll.own_imports.counts[place]++;
        __atomic_fetch_or(word_of((uint32_t)place), bit_of((uint32_t)place), __ATOMIC_SEQ_CST);
        if (!is_live(piece_at((uint32_t)place), key)) {
            drop_import((uint32_t)place);
            place = -1;
        }
    }
    pthread_mutex_unlock(&plimsoll.own_imports.lock);
    return (uint16_t)(place + 1);
}

uint64_t plimsoll_import_end(uint16_t number, int *gpu) {
    uint64_t bytes = 0;
    uint32_t place = number - 1u;
    pthread_mutex_lock(&plimsoll.own_imports.lock);
    bool is_last = plimsoll.own_imports.counts[place] == 1 && plimsoll.own_imports.is_let_go[place];
    if (is_last) {
        *gpu = (int)piece_at(place)->gpu;
        bytes = piece_at(place)->bytes;
        plimsoll.own_imports.is_let_go[place] = false;
        orphan(piece_at(place)); /* before the bit is cleared: other processes may import the piece too */
    }
    drop_import(place);
    pthread_mutex_unlock(&plimsoll.own_imports.lock);
    return bytes;
}

bool plimsoll_export_end(uint16_t number) {
    uint32_t place = number - 1u;
    pthread_mutex_lock(&plimsoll.own_imports.lock);
    bool is_let_go = plimsoll.own_imports.is_let_go[place] = plimsoll.own_imports.counts[place] > 0;
    if (!is_let_go)
        orphan(piece_at(place));
    pthread_mutex_unlock(&plimsoll.own_imports.lock);
    return !is_let_go;
}

void plimsoll_exports_of_earlier_program(void) {
    for (uint32_t place = 0; plimsoll.exports && place < touched(); place++)
        if (load(&piece_at(place)->owner) == plimsoll.owner &&
            __atomic_load_n(&piece_at(place)->state, __ATOMIC_SEQ_CST) == PLIMSOLL_EXPORT_LIVE)
            orphan(piece_at(place));
    for (uint32_t place = 0; plimsoll.exports && place < PLIMSOLL_MAX_EXPORTS; place += WORD_BITS)
        __atomic_store_n(word_of(place), 0, __ATOMIC_SEQ_CST);
}
