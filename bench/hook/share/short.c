/* Short programs, one after another in one container: `share_short MIB TIMES` starts itself anew TIMES times,
 * each time as a program that makes a context, allocates MIB, and ends. Prints the number of refused
 * allocations. */
#define _GNU_SOURCE
#include "../task.h"

#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REFUSED = 2, FAILED = 3 };

static int live(size_t mib) {
    CUdevice device;
    CUcontext context;
    CUdeviceptr address;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    CUresult result = cuDevicePrimaryCtxRetain(&context, device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return REFUSED;
    must(result, "cuDevicePrimaryCtxRetain");
    MUST(cuCtxSetCurrent(context));
    result = cuMemAlloc(&address, mib << 20);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return REFUSED;
    must(result, "cuMemAlloc");
    return 0;
}

static int start_and_wait(char *mib) {
    char name[] = "share_short", once[] = "once";
    char *arguments[] = {name, once, mib, NULL};
    pid_t pid;
    int status;
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ) != 0)
        return FAILED;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return FAILED;
    return WEXITSTATUS(status);
}

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "once") == 0)
        return live(strtoul(arguments[2], NULL, 10));
    if (count != 3)
        return FAILED;
    unsigned long times = strtoul(arguments[2], NULL, 10), refused = 0, failed = 0;
    for (unsigned long i = 0; i < times; i++) {
        int status = start_and_wait(arguments[1]);
        refused += status == REFUSED;
        failed += status != 0 && status != REFUSED;
    }
    printf("{\"programs\": %lu, \"refused\": %lu, \"failed\": %lu}\n", times, refused, failed);
    return 0;
}
