/* The emulator's functions, for a driver that stands in its place and is linked to it under another name. The
 * including file defines _GNU_SOURCE.
 */
#ifndef EMULATED_H
#define EMULATED_H

#include <dlfcn.h>
#include <string.h>

static void *find(const char *name) {
    return dlsym(dlopen("libemul.so.1", RTLD_LAZY | RTLD_NOLOAD), name);
}

/* ISO C has no cast for this. */
#define EMULATED(name, ...)                                                                                  \
    __extension__({                                                                                          \
        __typeof__(&name) function;                                                                          \
        void *found = find(#name);                                                                           \
        memcpy(&function, &found, sizeof(found));                                                            \
        function(__VA_ARGS__);                                                                               \
    })

#endif
