/* Launches at a gate, and meanwhile does what its argument says. Linked against the driver.
 *
 *     cancelled  A thread that was asked to end launches. It ends where it says so itself, not within the
 * launch. Prints "ended 1" if it did, then the result of the next thread's launch. jumping    A handler of
 * SIGALRM leaves the launch by siglongjmp. Prints "alloc" and the result of an allocation of 1 GiB after the
 * jump. handling   A handler of SIGUSR1 forks within the launch. Prints "ready", at each signal what became
 * of the child, and at last what the launch answered. The child is to come out of the launch (7), and finds a
 * driver that is not initialised. beside     Forks again and again beside threads that launch; each child
 * calls `cuInit`. Prints "wrong" and the number of children that did not get CUDA_ERROR_NOT_INITIALIZED in
 * time, 1 at most.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CAME_OUT = 7, THREADS = 4, FORKS = 200, PATIENCE_S = 10 };

static _Thread_local char larger_than_a_small_stack[1 << 20];

static CUcontext context;
static CUfunction kernel;
static volatile sig_atomic_t is_child;
static int is_over;
static sigjmp_buf before_launch;

static void must(CUresult result) {
    if (result != CUDA_SUCCESS)
        _exit(3);
}

static CUresult launch(void) {
    unsigned long long length_ns = 1000;
    void *parameters[] = {&length_ns};
    return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

static void *launch_once_cancelled(void *unused) {
    memset(larger_than_a_small_stack, 1, sizeof(larger_than_a_small_stack));
    must(cuCtxSetCurrent(context));
    pthread_cancel(pthread_self());
    must(launch());
    pthread_testcancel();
    return unused;
}

static int cancelled(void) {
    pthread_t thread;
    void *result;
    if (pthread_create(&thread, NULL, launch_once_cancelled, NULL) != 0 || pthread_join(thread, &result) != 0)
        return 4;
    printf("ended %d\n", result == PTHREAD_CANCELED);
    fflush(stdout);
    printf("launch %d\n", launch());
    return 0;
}

static void jump(int signal_number) {
    siglongjmp(before_launch, signal_number);
}

static int jumping(void) {
    CUdeviceptr memory;
    signal(SIGALRM, jump);
    if (sigsetjmp(before_launch, 1) == 0)
        must(launch());
    printf("alloc %d\n", cuMemAlloc(&memory, 1ull << 30));
    return 0;
}

static void fork_here(int number) {
    int status = -1;
    char line[] = "child 0\n";
    pid_t child = fork();
    (void)number;
    if (child == 0) {
        is_child = 1;
        return;
    }
    waitpid(child, &status, 0);
    line[6] = (char)('0' + (WIFEXITED(status) ? WEXITSTATUS(status) : 9));
    if (write(1, line, sizeof(line) - 1) < 0)
        _exit(4);
}

static int handling(void) {
    signal(SIGUSR1, fork_here);
    puts("ready");
    fflush(stdout);
    CUresult result = launch();
    if (is_child)
        _exit(result == CUDA_ERROR_NOT_INITIALIZED ? CAME_OUT : 8);
    printf("launch %d\n", result);
    return 0;
}

static void *launch_until_over(void *unused) {
    must(cuCtxSetCurrent(context));
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED))
        must(launch());
    return unused;
}

static int child_result(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_S); /* ends a child that hangs */
        _exit((int)cuInit(0));
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int beside(void) {
    pthread_t threads[THREADS];
    int wrong = 0;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, launch_until_over, NULL) != 0)
            return 4;
    for (int i = 0; i < FORKS && !wrong; i++)
        wrong += child_result() != (int)CUDA_ERROR_NOT_INITIALIZED;
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("wrong %d\n", wrong);
    return 0;
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        int (*run)(void);
    } scenes[] = {{"cancelled", cancelled}, {"jumping", jumping}, {"handling", handling}, {"beside", beside}};
    CUmodule module;
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
    must(cuModuleLoadData(&module, "any image"));
    must(cuModuleGetFunction(&kernel, module, "busy"));
    for (size_t i = 0; count == 2 && i < sizeof(scenes) / sizeof(scenes[0]); i++)
        if (strcmp(arguments[1], scenes[i].name) == 0)
            return scenes[i].run();
    return 5;
}
