/* The driver's own functions, found once, and the wrapper of each. */
#ifndef PLIMSOLL_DRIVER_H
#define PLIMSOLL_DRIVER_H

#include "state.h"

/* The genuine function, to be called: `REAL(cuMemAlloc_v2)(&pointer, bytes)`. Never NULL. */
#define REAL(symbol) ((__typeof__(&symbol))plimsoll_real(HOOK_##symbol))
#define CALLED(symbol) ((__typeof__(&symbol))plimsoll_real(CALLED_##symbol))

/* Whether the loaded driver has the function: old drivers lack some. */
#define HAS(symbol) (plimsoll_call(CALLED_##symbol) && plimsoll.driver[CALLED_##symbol])

plimsoll_function plimsoll_call(enum plimsoll_index index);

/* The same, in one load once the library was found: a launch must cost no more. */
static inline plimsoll_function plimsoll_real(enum plimsoll_index index) {
    plimsoll_function known = __atomic_load_n(&plimsoll.call[index], __ATOMIC_RELAXED);
    return known ? known : plimsoll_call(index);
}

/* Finds the library among those loaded, without loading it. True when it is loaded and its functions are
 * known. */
bool plimsoll_resolve(enum plimsoll_library library);

/* The same, and if the library is not found by its soname, tries the file that holds `function`. */
bool plimsoll_resolve_around(enum plimsoll_library library, const void *function);

/* Whether a function lies in a file named like the driver's, which may be another file than the resolved
 * one. */
bool plimsoll_is_in_driver_file(enum plimsoll_library library, const void *function);

/* Whether the loaded library itself defines this name, hooked or not. */
bool plimsoll_driver_has(enum plimsoll_library library, const char *name);

/* Finds glibc's look-ups. False if there are none. */
bool plimsoll_resolve_loader(void);

/* The hook of this name, or HOOK_END. */
enum plimsoll_index plimsoll_hook_named(const char *name);

/* The wrapper of a driver's function. A wrapper's own wrapper is itself. NULL if the function has no hook. */
plimsoll_function plimsoll_wrapper_of(plimsoll_function function);

plimsoll_function plimsoll_wrapper(enum plimsoll_index index);
enum plimsoll_library plimsoll_library_of(enum plimsoll_index index);
const char *plimsoll_hook_name(enum plimsoll_index index);

#endif
