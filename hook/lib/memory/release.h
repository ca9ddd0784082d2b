/* What is remembered of each charge, and what happens when it goes back. */
#ifndef PLIMSOLL_RELEASE_H
#define PLIMSOLL_RELEASE_H

#include "state.h"

/* Keeps what was charged for `holding.key` until that is freed; if there is no memory to, until this process
 * ends. */
void plimsoll_remember(struct plimsoll_holding holding);

/* Off the books: what a holding was charged, or what it referred to. */
void plimsoll_give_back(const struct plimsoll_holding *holding);

/* One reference more or less to what cuMemCreate made or an import brought; with the last it is given back.
 */
void plimsoll_refer(uint64_t handle, int change);

/* After a free: off the books, or back on them if the driver refused. */
CUresult plimsoll_settle_free(CUresult result, const struct plimsoll_holding *holding);

/* A freeing hook. Forgotten before the driver's call, since the driver may hand the same name to another
 * thread right after it; given back after the call, since until then the memory is taken. What is not known
 * here goes to the driver all the same. */
#define PLIMSOLL_FREE(symbol, held, key, ...)                                                                \
    do {                                                                                                     \
        struct plimsoll_holding holding;                                                                     \
        bool is_known =                                                                                      \
            plimsoll_depth == 0 && plimsoll_holdings_take(&plimsoll.holdings, held, key, &holding);          \
        plimsoll_depth++;                                                                                    \
        CUresult result = REAL(symbol)(__VA_ARGS__);                                                         \
        plimsoll_depth--;                                                                                    \
        return is_known ? plimsoll_settle_free(result, &holding) : result;                                   \
    } while (0)

#endif
