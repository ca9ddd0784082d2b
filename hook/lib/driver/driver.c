/* Finds the driver's functions in the driver's own library, past every other preload.
 *
 * This library neither links nor loads libcuda or NVML, so a process that never touches a GPU never loads
 * either. When the program first looks up or calls one of their functions, the library is opened with
 * RTLD_NOLOAD. It then stays pinned, so that the pointers kept here stay valid even if the program closes its
 * handle.
 */
#include "driver/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "say.h"

struct hook {
    const char *name;
    plimsoll_function wrapper;
};

#define HOOK_ENTRY(symbol, kind) {#symbol, (plimsoll_function)symbol},
static const struct hook hooks[] = {PLIMSOLL_CUDA_HOOKS(HOOK_ENTRY) PLIMSOLL_NVML_HOOKS(HOOK_ENTRY)};
_Static_assert(sizeof(hooks) / sizeof(hooks[0]) == HOOK_END, "one entry for each index");

#define CALLED_NAME(symbol) #symbol,
static const char *const called[] = {PLIMSOLL_CUDA_CALLED(CALLED_NAME) PLIMSOLL_NVML_CALLED(CALLED_NAME)};
_Static_assert(sizeof(called) / sizeof(called[0]) == INDEX_END - HOOK_END, "one name for each index");

static const char *const sonames[LIBRARY_END] = {"libcuda.so.1", "libnvidia-ml.so.1"};

/* The answer to a program that linked a function weakly, found this library's symbol, and called it. */
static int cuda_missing(void) {
    return CUDA_ERROR_NOT_FOUND;
}

static int nvml_missing(void) {
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static const char *name_of(enum plimsoll_index index) {
    return index < HOOK_END ? hooks[index].name : called[index - HOOK_END];
}

const char *plimsoll_hook_name(enum plimsoll_index index) {
    return hooks[index].name;
}

plimsoll_function plimsoll_wrapper(enum plimsoll_index index) {
    return hooks[index].wrapper;
}

enum plimsoll_library plimsoll_library_of(enum plimsoll_index index) {
    return name_of(index)[0] == 'n' ? LIBRARY_NVML : LIBRARY_CUDA;
}

static plimsoll_function as_function(void *object) {
    plimsoll_function function;
    memcpy(&function, &object, sizeof(function)); /* ISO C has no cast for this; POSIX promises it works */
    return function;
}

static void *next_in_line(const struct plimsoll_loader *loader, const char *name, const void *genuine) {
    void *next = loader->dlsym(RTLD_NEXT, name);
    if (!next)
        memcpy(&next, genuine, sizeof(next));
    return next;
}

/* Another preload may hook dlsym too: look-ups that are not ours go on to the next in line.
 *
 * No look-up happens under resolve_lock. It would take the loader's lock inside ours, while a constructor
 * that runs under the loader's lock may come through here. At most, two threads do the same work twice.
 */
bool plimsoll_resolve_loader(void) {
    if (__atomic_load_n(&plimsoll.is_loader_found, __ATOMIC_ACQUIRE))
        return true;
    struct plimsoll_loader loader;
    if (!plimsoll_find_loader(&loader))
        return false;
    void *next_dlsym = next_in_line(&loader, "dlsym", &loader.dlsym);
    void *next_dlvsym = next_in_line(&loader, "dlvsym", &loader.dlvsym);
    pthread_mutex_lock(&plimsoll.resolve_lock);
    if (!plimsoll.is_loader_found) {
        plimsoll.loader = loader;
        plimsoll.next_dlsym = next_dlsym;
        plimsoll.next_dlvsym = next_dlvsym;
        __atomic_store_n(&plimsoll.is_loader_found, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&plimsoll.resolve_lock);
    return true;
}

static plimsoll_function look_up(void *library, enum plimsoll_index index) {
    plimsoll_function found = as_function(plimsoll.loader.dlsym(library, name_of(index)));
    if (found && plimsoll_wrapper_of(found) == found) {
        plimsoll_fail("%s leads back to this library: is it preloaded twice?", name_of(index));
        return NULL;
    }
    return found;
}

static plimsoll_function missing_of(enum plimsoll_library library) {
    return library == LIBRARY_CUDA ? (plimsoll_function)cuda_missing : (plimsoll_function)nvml_missing;
}

static void look_up_all(enum plimsoll_library library, void *handle, plimsoll_function found[INDEX_END]) {
    for (int i = 0; i < INDEX_END; i++)
        if (plimsoll_library_of((enum plimsoll_index)i) == library)
            found[i] = look_up(handle, (enum plimsoll_index)i);
}

static void publish(enum plimsoll_library library, plimsoll_function found[INDEX_END]) {
    for (int i = 0; i < INDEX_END; i++) {
        if (plimsoll_library_of((enum plimsoll_index)i) != library)
            continue;
        plimsoll.driver[i] = found[i];
        __atomic_store_n(&plimsoll.call[i], found[i] ? found[i] : missing_of(library), __ATOMIC_RELAXED);
    }
    __atomic_store_n(&plimsoll.is_resolved[library], 1, __ATOMIC_RELEASE);
}

static bool resolve_from(enum plimsoll_library library, const char *path) {
    int saved = errno;
    void *handle = plimsoll.loader.dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) {
        /* The program made no look-up here, so it must not find our failure. */
        (void)plimsoll.loader.dlerror();
        errno = saved;
        return false;
    }
    plimsoll_function found[INDEX_END];
    look_up_all(library, handle, found);
    pthread_mutex_lock(&plimsoll.resolve_lock);
    if (!plimsoll.is_resolved[library])
        publish(library, found);
    pthread_mutex_unlock(&plimsoll.resolve_lock);
    errno = saved;
    return true;
}

bool plimsoll_resolve(enum plimsoll_library library) {
    if (__atomic_load_n(&plimsoll.is_resolved[library], __ATOMIC_ACQUIRE))
        return true;
    return plimsoll_resolve_loader() && resolve_from(library, sonames[library]);
}

bool plimsoll_driver_has(enum plimsoll_library library, const char *name) {
    if (!plimsoll_resolve(library))
        return false;
    int saved = errno;
    void *handle = plimsoll.loader.dlopen(sonames[library], RTLD_LAZY | RTLD_NOLOAD);
    bool is_there = handle && plimsoll.loader.dlsym(handle, name);
    (void)plimsoll.loader.dlerror();
    errno = saved;
    return is_there;
}

/* `libcuda.so.1` in any folder and under any version: the file's name begins with the soname without its last
 * ".1". */
static const char *driver_file_of(enum plimsoll_library library, const void *function) {
    Dl_info object;
    if (!plimsoll.loader.dladdr(function, &object) || !object.dli_fname)
        return NULL;
    const char *slash = strrchr(object.dli_fname, '/');
    const char *file = slash ? slash + 1 : object.dli_fname;
    bool is_driver = strncmp(file, sonames[library], strlen(sonames[library]) - 2) == 0;
    return is_driver ? object.dli_fname : NULL;
}

bool plimsoll_is_in_driver_file(enum plimsoll_library library, const void *function) {
    return driver_file_of(library, function) != NULL;
}

bool plimsoll_resolve_around(enum plimsoll_library library, const void *function) {
    if (plimsoll_resolve(library))
        return true;
    const char *path = driver_file_of(library, function);
    return path && resolve_from(library, path);
}

plimsoll_function plimsoll_call(enum plimsoll_index index) {
    enum plimsoll_library library = plimsoll_library_of(index);
    return plimsoll_resolve(library) ? plimsoll.call[index] : missing_of(library);
}

enum plimsoll_index plimsoll_hook_named(const char *name) {
    if (strncmp(name, "cu", 2) != 0 && strncmp(name, "nvml", 4) != 0)
        return HOOK_END;
    for (int i = 0; i < HOOK_END; i++)
        if (strcmp(name, hooks[i].name) == 0)
            return (enum plimsoll_index)i;
    return HOOK_END;
}

plimsoll_function plimsoll_wrapper_of(plimsoll_function function) {
    for (int i = 0; i < HOOK_END; i++)
        if (function == hooks[i].wrapper || (function == plimsoll.driver[i] && function))
            return hooks[i].wrapper;
    return NULL;
}
