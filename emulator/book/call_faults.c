/* Invariant: while a fault is being changed its `length` is 0, so no call meets half of a fault. */
#include "book/call_faults.h"

#include <string.h>
#include <time.h>

bool book_set_call_fault(struct book *book, int gpu, const char *call, uint32_t error, uint32_t delay_ms) {
    struct book_call_fault *fault = &book->state->call_faults[gpu];
    if (strlen(call) >= sizeof fault->call)
        return false;
    __atomic_store_n(&fault->length, 0, __ATOMIC_SEQ_CST);
    memcpy(fault->call, call, strlen(call) + 1);
    fault->error = error;
    fault->delay_ms = delay_ms;
    __atomic_store_n(&fault->length, (uint32_t)strlen(call), __ATOMIC_SEQ_CST);
    return true;
}

uint32_t book_suffer_call_fault(const struct book *book, int gpu, const char *function) {
    const struct book_call_fault *fault = &book->state->call_faults[gpu];
    uint32_t length = __atomic_load_n(&fault->length, __ATOMIC_SEQ_CST);
    if (!length || strncmp(function, fault->call, length) != 0)
        return 0;
    struct timespec delay = {.tv_sec = fault->delay_ms / 1000,
                             .tv_nsec = (long)(fault->delay_ms % 1000) * 1000000};
    uint32_t error = fault->error;
    nanosleep(&delay, NULL);
    return error;
}
