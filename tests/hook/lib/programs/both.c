/* Two ask at the same instant for what only one of them can have.
 *
 *     both ROUNDS BYTES
 *
 * Each round both wait for each other, ask, wait again, and whoever got it gives it back. Prints in how many
 * rounds none, one and both of them got it. */
#define _GNU_SOURCE
#include <cuda.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct meeting {
    int arrived[2]; /* atomic; how many times each has come */
    int got[2];     /* atomic; in the present round */
    unsigned rounds_by_count[3];
};

static struct meeting *meeting;
static unsigned rounds;
static size_t bytes;

static void must(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "both: %s answered %d\n", what, result);
        _exit(3);
    }
}

/* Spins, so that both leave within nanoseconds; with one processor for two, gives way. */
static void meet(int who) {
    int mine = __atomic_add_fetch(&meeting->arrived[who], 1, __ATOMIC_SEQ_CST);
    for (unsigned spins = 0; __atomic_load_n(&meeting->arrived[!who], __ATOMIC_SEQ_CST) < mine; spins++)
        if (spins % 1024 == 1023)
            sched_yield();
}

static void ask(int who) {
    CUdeviceptr pointer = 0;
    meet(who);
    CUresult result = cuMemAlloc(&pointer, bytes);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        must(result, "cuMemAlloc");
    __atomic_store_n(&meeting->got[who], result == CUDA_SUCCESS, __ATOMIC_SEQ_CST);
    meet(who);
    if (who == 0)
        meeting->rounds_by_count[meeting->got[0] + meeting->got[1]]++;
    if (result == CUDA_SUCCESS)
        must(cuMemFree(pointer), "cuMemFree");
}

static void take_part(int who) {
    CUcontext context;
    must(cuInit(0), "cuInit");
    must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (unsigned i = 0; i < rounds; i++)
        ask(who);
    meet(who);
}

int main(int count, char **arguments) {
    int status = 0;
    if (count != 3)
        return 2;
    rounds = (unsigned)strtoul(arguments[1], NULL, 10);
    bytes = strtoul(arguments[2], NULL, 10);
    meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (meeting == MAP_FAILED)
        return 3;
    if (fork() == 0) {
        take_part(1);
        _exit(0);
    }
    take_part(0);
    wait(&status);
    printf("%u %u %u\n", meeting->rounds_by_count[0], meeting->rounds_by_count[1],
           meeting->rounds_by_count[2]);
    return status == 0 ? 0 : 3;
}
