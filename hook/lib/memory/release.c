#include "memory/release.h"

#include "memory/exports.h"
#include "memory/ledger.h"
#include "memory/pools/pools.h"
#include "say.h"
#include "share/captures.h"

/* The driver hands out an address, or the handle of an array, only when no memory has it any more. So a
 * holding that is still remembered under that address or handle has ended without a hooked call. */
static bool is_gone(const struct plimsoll_holding *before) {
    return before->is_used &&
           (before->kind == HELD_MEMORY || before->kind == HELD_ARRAY || before->kind == HELD_MIPMAP);
}

void plimsoll_remember(struct plimsoll_holding holding) {
    struct plimsoll_holding before;
    if (!plimsoll_holdings_replace(&plimsoll.holdings, holding, &before))
        plimsoll_fail("no memory to remember an allocation: it stays counted until this process ends");
    else if (is_gone(&before))
        plimsoll_give_back(&before);
}

static void refer(enum plimsoll_kind kind, uint64_t key, int change) {
    struct plimsoll_holding last;
    if (plimsoll_holdings_refer(&plimsoll.holdings, kind, key, change, &last))
        plimsoll_give_back(&last);
}

void plimsoll_refer(uint64_t handle, int change) {
    refer(HELD_HANDLE, handle, change);
}

void plimsoll_refer_extent(uint64_t number, int change) {
    refer(HELD_EXTENT, number, change);
}

/* Takes shared memory off `exports`. True if the holding's own charge goes back too: not while this process
 * imports what it exported, and never for a part. */
static bool give_back_shared(const struct plimsoll_holding *holding) {
    int gpu = -1;
    switch (holding->sharing) {
    case SHARED_EXPORTED:
        return plimsoll_export_end(holding->piece) || holding->pool;
    case SHARED_IMPORTED:
        if (holding->piece) {
            uint64_t bytes = plimsoll_import_end(holding->piece, &gpu);
            plimsoll_uncharge_and_tell(gpu, bytes);
        }
        return true;
    case SHARED_PART:
        plimsoll_refer_extent(holding->bytes, -1);
        return false;
    default:
        return true;
    }
}

void plimsoll_give_back(const struct plimsoll_holding *holding) {
    if (!give_back_shared(holding))
        return;
    switch (holding->kind) {
    case HELD_MAPPING:
        plimsoll_refer(holding->with, -1);
        break;
    case HELD_TILES:
        plimsoll_refer(holding->bytes, -1);
        break;
    case HELD_CAPTURE:
        plimsoll_capture_gone();
        break;
    case HELD_ARRAY:
    case HELD_MIPMAP:
        plimsoll_uncharge_and_tell(holding->gpu, holding->bytes);
        if (holding->bytes == 0) /* no memory of its own, but perhaps memory of handles */
            plimsoll_holdings_sweep(&plimsoll.holdings, holding->key, plimsoll_give_back);
        break;
    default:
        if (holding->pool)
            plimsoll_pool_returned(holding);
        else
            plimsoll_uncharge_and_tell(holding->gpu, holding->bytes);
    }
}

CUresult plimsoll_settle_free(CUresult result, const struct plimsoll_holding *holding) {
    if (result == CUDA_SUCCESS)
        plimsoll_give_back(holding);
    else
        plimsoll_holdings_put(&plimsoll.holdings, *holding);
    return result;
}
