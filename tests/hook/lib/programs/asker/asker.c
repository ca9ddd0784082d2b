/* A CUDA program under remote control: reads one command per line, does it, and answers with one line.
 *
 * It finds every driver function as CUDA's own runtime does, through dlsym on an opened libcuda or through
 * cuGetProcAddress (`route`), so any variant of any function can be called by name. See `commands` below.
 */
#define _GNU_SOURCE
#include "asker.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void *driver;

void *find(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) {
        printf("missing %s\n", name);
        exit(3);
    }
    return found;
}

/* --- commands: each reads its arguments and prints one line ----------------------------------------------
 */

static void do_load(const char *path) {
    driver = dlopen(*path ? path : "libcuda.so.1", RTLD_NOW);
    printf("%d\n", driver ? 0 : 1);
}

static void do_init(const char *unused) {
    (void)unused;
    errno = 77;
    CUresult result = FUNCTION(cuInit)(0);
    printf("%d %d\n", result, errno);
}

static void do_retain(const char *text) {
    CUcontext context = NULL;
    CUresult result = FUNCTION(cuDevicePrimaryCtxRetain)(&context, atoi(text));
    if (result == CUDA_SUCCESS)
        result = FUNCTION(cuCtxSetCurrent)(context);
    printf("%d\n", result);
}

static void do_release(const char *text) {
    printf("%d\n", FUNCTION(cuDevicePrimaryCtxRelease_v2)(atoi(text)));
}

static void do_reset(const char *text) {
    printf("%d\n", FUNCTION(cuDevicePrimaryCtxReset_v2)(atoi(text)));
}

static void do_create(const char *text) {
    CUcontext context = NULL;
    CUresult result = FUNCTION(cuCtxCreate_v2)(&context, 0, atoi(text));
    printf("%d %llu\n", result, (number)(uintptr_t)context);
}

static void do_destroy(const char *text) {
    printf("%d\n", FUNCTION(cuCtxDestroy_v2)((CUcontext)(uintptr_t)strtoull(text, NULL, 10)));
}

static void do_sync(const char *unused) {
    (void)unused;
    printf("%d\n", FUNCTION(cuCtxSynchronize)());
}

static void print_home(void *address) {
    Dl_info home = {0};
    if (!address || !dladdr(address, &home)) {
        printf("none none\n");
        return;
    }
    const char *slash = strrchr(home.dli_fname, '/');
    printf("%s %s\n", slash ? slash + 1 : home.dli_fname, home.dli_sname ? home.dli_sname : "?");
}

/* `proc NAME VERSION FLAGS`: which function of which library the driver's own look-up hands out. */
static void do_proc(const char *text) {
    char symbol[64];
    int version = 0;
    number flags = 0;
    void *function = NULL;
    CUdriverProcAddressQueryResult status;
    sscanf(text, "%63s %d %llu", symbol, &version, &flags);
    FUNCTION(cuGetProcAddress_v2)(symbol, &function, version, flags, &status);
    print_home(function);
}

/* `where default|next|driver|itself NAME`: which function of which library dlsym finds. */
static void do_where(const char *text) {
    char scope[16], name[64];
    sscanf(text, "%15s %63s", scope, name);
    void *handle = strcmp(scope, "default") == 0  ? RTLD_DEFAULT
                   : strcmp(scope, "next") == 0   ? RTLD_NEXT
                   : strcmp(scope, "driver") == 0 ? driver
                                                  : dlopen(NULL, RTLD_NOW);
    print_home(dlsym(handle, name));
}

static void do_dlerror(const char *name) {
    dlerror();
    void *found = dlsym(RTLD_DEFAULT, name);
    const char *error = dlerror();
    printf("%d %s\n", found != NULL, error ? error : "none");
}

static void do_versioned(const char *name) {
    print_home(dlvsym(driver, name, "NO_SUCH_VERSION"));
}

/* `hammer ROUNDS BYTES`: allocate and free, counting what came of it. */
static number hammer(number rounds, number bytes) {
    number made = 0;
    for (number i = 0; i < rounds; i++) {
        CUdeviceptr pointer;
        if (FUNCTION(cuMemAlloc_v2)(&pointer, bytes) != CUDA_SUCCESS)
            continue;
        made++;
        FUNCTION(cuMemFree_v2)(pointer);
    }
    return made;
}

static void do_hammer(const char *text) {
    number rounds = 0, bytes = 0;
    sscanf(text, "%llu %llu", &rounds, &bytes);
    printf("%llu\n", hammer(rounds, bytes));
}

static struct crowd {
    CUcontext context;
    number bytes;
    unsigned count;
    pthread_t threads[16];
} crowd;

static void *allocate_once(void *unused) {
    CUdeviceptr pointer;
    (void)unused;
    FUNCTION(cuCtxSetCurrent)(crowd.context);
    return FUNCTION(cuMemAlloc_v2)(&pointer, crowd.bytes) == CUDA_SUCCESS ? &crowd : NULL;
}

/* `crowd COUNT BYTES`: threads that allocate at once; `joined` waits for them, and tells how many got it. */
static void do_crowd(const char *text) {
    sscanf(text, "%u %llu", &crowd.count, &crowd.bytes);
    FUNCTION(cuCtxGetCurrent)(&crowd.context);
    for (unsigned i = 0; i < crowd.count && i < 16; i++)
        pthread_create(&crowd.threads[i], NULL, allocate_once, NULL);
    printf("0\n");
}

static void do_joined(const char *unused) {
    unsigned made = 0;
    (void)unused;
    for (unsigned i = 0; i < crowd.count && i < 16; i++) {
        void *got = NULL;
        pthread_join(crowd.threads[i], &got);
        made += got != NULL;
    }
    printf("%u\n", made);
}

static const struct {
    const char *name;
    void (*run)(const char *arguments);
} commands[] = {
    {"load", do_load},           {"init", do_init},       {"retain", do_retain},
    {"release", do_release},     {"reset", do_reset},     {"create", do_create},
    {"destroy", do_destroy},     {"alloc", do_alloc},     {"free", do_free},
    {"info", do_info},           {"info_v1", do_info_v1}, {"total", do_total},
    {"pool", do_pool},           {"map", do_map},         {"unmap", do_unmap},
    {"proc", do_proc},           {"where", do_where},     {"dlerror", do_dlerror},
    {"versioned", do_versioned}, {"hammer", do_hammer},   {"exec", do_exec},
    {"fork", do_fork},           {"pid", do_pid},         {"sync", do_sync},
    {"vfork", do_vfork},         {"spawn", do_spawn},     {"crowd", do_crowd},
    {"joined", do_joined},       {"beside", do_beside},
};

static void obey(char *line) {
    line[strcspn(line, "\n")] = 0;
    char *arguments = strchr(line, ' ');
    if (arguments)
        *arguments++ = 0;
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(line, commands[i].name) == 0) {
            commands[i].run(arguments ? arguments : "");
            return;
        }
    printf("unknown command %s\n", line);
}

void serve(FILE *from) {
    char line[4096];
    while (fgets(line, sizeof(line), from)) {
        obey(line);
        fflush(stdout);
    }
}

int main(void) {
    serve(stdin);
    return 0;
}
