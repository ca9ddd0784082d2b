#include "share/captures.h"

#include "state.h"

bool plimsoll_captures_under_way(void) {
    return __atomic_load_n(&plimsoll.captures.under_way, __ATOMIC_SEQ_CST) > 0;
}

bool plimsoll_begin_query(void) {
    __atomic_fetch_add(&plimsoll.captures.queries, 1, __ATOMIC_SEQ_CST);
    if (!plimsoll_captures_under_way())
        return true;
    plimsoll_end_query();
    return false;
}

void plimsoll_end_query(void) {
    __atomic_fetch_sub(&plimsoll.captures.queries, 1, __ATOMIC_SEQ_CST);
}

void plimsoll_capture_gone(void) {
    __atomic_fetch_sub(&plimsoll.captures.under_way, 1, __ATOMIC_SEQ_CST);
}

void plimsoll_captures_reset(void) {
    plimsoll.captures = (struct plimsoll_captures){0};
}
