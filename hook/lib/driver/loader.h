/* The functions of glibc's loader: the genuine dlsym and dlvsym, which this library's own ones hide, and
 * others that this library does not link. Up to glibc 2.33 the functions live in libdl.so.2. A link to it
 * would bring one more library into every process of the container, at more cost than this library itself.
 * Every process with the driver has libdl too. */
#ifndef PLIMSOLL_LOADER_H
#define PLIMSOLL_LOADER_H

#include <dlfcn.h>

#define PLIMSOLL_LOADER_FUNCTIONS(X) X(dlsym) X(dlvsym) X(dlopen) X(dlerror) X(dladdr) X(dladdr1)

#define PLIMSOLL_LOADER_FIELD(name) __typeof__(&name) name;
struct plimsoll_loader {
    PLIMSOLL_LOADER_FUNCTIONS(PLIMSOLL_LOADER_FIELD)
};

/* Finds the functions in the symbol tables of the loaded libraries. False where no libc or libdl with a GNU
 * hash table is loaded (then nothing can be looked up at all). */
int plimsoll_find_loader(struct plimsoll_loader *found);

#endif
