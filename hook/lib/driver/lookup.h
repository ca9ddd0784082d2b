/* The C side of the assembly entry points of dlsym and dlvsym. */
#ifndef PLIMSOLL_LOOKUP_H
#define PLIMSOLL_LOOKUP_H

#include <stdint.h>

/* Returned in two registers: the answer, or the function to continue with, with the caller's own
 * arguments. */
struct plimsoll_route {
    void *value;
    uintptr_t is_answer;
};

struct plimsoll_route plimsoll_route_dlsym(void *handle, const char *name, const char *unused,
                                           const void *caller);
struct plimsoll_route plimsoll_route_dlvsym(void *handle, const char *name, const char *version,
                                            const void *caller);

#endif
