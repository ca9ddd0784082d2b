/* Preloads beside the library under test.
 *
 * UPPER, LOWER: two that define `marker` and call the next one, as interposers do.
 * DLSYM: one that stands in front of dlsym itself and says which `cu` names came by. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef DLSYM

typedef void *(*look_up)(void *, const char *);

void *dlsym(void *handle, const char *name) {
    static look_up real;
    if (!real) {
#if defined(__x86_64__)
        void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
#else
        void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
#endif
        memcpy(&real, &found, sizeof(real));
    }
    if (getenv("LAYER_LOG") && strncmp(name, "cu", 2) == 0)
        fprintf(stderr, "layer: %s\n", name);
    return real(handle, name);
}

#else

void marker(void);

void marker(void) {
#ifdef UPPER
    puts("upper");
#else
    puts("lower");
#endif
    void (*next)(void) = NULL;
    void *found = dlsym(RTLD_NEXT, "marker");
    memcpy(&next, &found, sizeof(next));
    if (next)
        next();
    else
        puts("end");
}

#endif
