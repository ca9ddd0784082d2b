/* Remembers each charge, and gives it back. */
#ifndef PLIMSOLL_RELEASE_H
#define PLIMSOLL_RELEASE_H

#include "state.h"

/* Keeps the charge of `holding.key` until the key is freed; if there is no memory to remember it, until this
 * process ends. */
void plimsoll_remember(struct plimsoll_holding holding);

/* Takes a holding off the books: its charge, or its reference to another holding. */
void plimsoll_give_back(const struct plimsoll_holding *holding);

/* Adds or removes references to a handle that cuMemCreate made or an import brought. With the last reference
 * the charge goes back. */
void plimsoll_refer(uint64_t handle, int change);

/* The same for the memory behind external memory. */
void plimsoll_refer_extent(uint64_t number, int change);

/* After a free: takes the holding off the books, or puts it back on them if the driver refused the free. */
CUresult plimsoll_settle_free(CUresult result, const struct plimsoll_holding *holding);

/* The body of a freeing hook. The holding is forgotten before the driver's call, because the driver may give
 * the same name to another thread right after the free. Its charge goes back after the call, because the
 * memory is taken until then. An unknown name goes to the driver too. */
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
