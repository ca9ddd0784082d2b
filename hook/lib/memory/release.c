#include "memory/release.h"

#include "memory/pools/reserved.h"
#include "memory/words.h"
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

/* Memory that was exported may live on under a handle imported in this very process. No call shows which
 * import that is. So as many charges stay as there are imports. */
static void give_back_handle(const struct plimsoll_holding *handle) {
    uint64_t bytes = handle->sharing == SHARED_NOT
                         ? handle->bytes
                         : plimsoll_holdings_bequeath(&plimsoll.holdings, handle->gpu, handle->bytes);
    plimsoll_uncharge_and_tell(handle->gpu, bytes);
}

void plimsoll_refer(uint64_t handle, int change) {
    struct plimsoll_holding last;
    if (plimsoll_holdings_refer(&plimsoll.holdings, HELD_HANDLE, handle, change, &last))
        give_back_handle(&last);
}

void plimsoll_give_back(const struct plimsoll_holding *holding) {
    switch (holding->kind) {
    case HELD_HANDLE:
        give_back_handle(holding);
        break;
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
