/* The functions of glibc's loader: the genuine dlsym and dlvsym, although this library stands in front of
 * both, and the others without linking them. Up to glibc 2.33 they live in libdl.so.2, and a link to it would
 * bring a library more into every process of the container, at more cost than this one itself. Whoever has
 * the driver has libdl too.
 */
#ifndef PLIMSOLL_LOADER_H
#define PLIMSOLL_LOADER_H

#include <dlfcn.h>

#define PLIMSOLL_LOADER_FUNCTIONS(X) X(dlsym) X(dlvsym) X(dlopen) X(dlerror) X(dladdr) X(dladdr1)

#define PLIMSOLL_LOADER_FIELD(name) __typeof__(&name) name;
struct plimsoll_loader {
    PLIMSOLL_LOADER_FUNCTIONS(PLIMSOLL_LOADER_FIELD)
};

/* Finds them by reading the loaded libraries' symbol tables. False where no libc or libdl with a GNU hash
 * table is loaded (then nothing can be looked up at all). */
int plimsoll_find_loader(struct plimsoll_loader *found);

#endif
