/* What the assembly entry points of dlsym and dlvsym ask the C side. */
#ifndef PLIMSOLL_LOOKUP_H
#define PLIMSOLL_LOOKUP_H

#include <stdint.h>

/* Comes back in two registers: the answer, or the function to go on to with the caller's own arguments. */
struct plimsoll_route {
    void *value;
    uintptr_t is_answer;
};

struct plimsoll_route plimsoll_route_dlsym(void *handle, const char *name);
struct plimsoll_route plimsoll_route_dlvsym(void *handle, const char *name, const char *version,
                                            const void *caller);

#endif
