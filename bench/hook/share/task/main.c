/* One tenant of a shared GPU: an ordinary program that keeps the GPU at work in one manner, for an ordered
 * time. It uses the driver API only, so it runs on the emulator and on a real GPU. It knows nothing of the
 * preload library.
 *
 *     share_task [gpu]       obeys one command a line, and ends with its standard input:
 *         MODE KERNEL_NS BEGIN_NS END_NS EACH   works from BEGIN to END (CLOCK_MONOTONIC; 0: from now on),
 *                                               and prints its results
 *         launch MS                             median nanoseconds of a launch of nothing
 *
 * `share_task rank …` is the second process of the mode `ranks`, which starts it. With `gpu` the device adds
 * up how long kernels ran, and the answer has that sum every 50 ms, in the place of the emulator's book.
 */
#define _GNU_SOURCE
#include "tenant.h"

#include <string.h>
#include <unistd.h>

static void print_done(uint64_t ended_ns) {
    printf("{\"kernels\": %llu, \"steps\": %llu, \"longest_step_ms\": %.1f, \"began_ns\": %llu, "
           "\"ended_ns\": %llu, \"pids\": [%d, %d], \"latencies_us\": [",
           (unsigned long long)done.kernels, (unsigned long long)done.steps,
           (double)done.longest_step_ns / (double)MS, (unsigned long long)order.begin_ns,
           (unsigned long long)ended_ns, getpid(), done.other_pid);
    for (size_t i = 0; i < done.latency_count; i++)
        printf("%s%u", i ? ", " : "", done.latencies_us[i]);
    printf("], \"samples\": [");
    device_print_samples();
    printf("]}\n");
}

static const struct mode *mode_named(const char *name) {
    const struct mode *const tables[] = {steady_modes, request_modes, coupled_modes, rank_modes};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct mode *mode = tables[i]; mode->name; mode++)
            if (strcmp(mode->name, name) == 0)
                return mode;
    return NULL;
}

static void work(const struct mode *mode) {
    done.kernels = done.steps = done.longest_step_ns = done.latency_count = 0;
    done.other_pid = 0;
    draw_anew();
    if (!order.begin_ns)
        order.begin_ns = now_ns();
    device_watch(strcmp(mode->name, "sync") != 0);
    if (!mode->prepares)
        sleep_until(order.begin_ns);
    mode->work();
    uint64_t ended_ns = now_ns();
    device_unwatch();
    print_done(ended_ns);
}

/* The wait for queued launches is not timed, so that no launch waits for room in the queue. */
static void measure_launches(uint64_t ms) {
    static uint64_t took_ns[MOST_BURSTS];
    uint64_t end_ns = now_ns() + ms * MS;
    size_t bursts = 0;
    while (bursts < MOST_BURSTS && now_ns() < end_ns) {
        uint64_t start_ns = now_ns();
        for (int i = 0; i < BURST; i++)
            launch(0);
        took_ns[bursts++] = now_ns() - start_ns;
        if (bursts % (MOST_QUEUED / BURST) == 0)
            MUST(cuStreamSynchronize(stream));
    }
    tell_median(took_ns, bursts);
}

static void obey(const char *line) {
    char name[16];
    unsigned long long kernel_ns, begin_ns = 0, end_ns = 0, each = 0, place = 0;
    int given =
        sscanf(line, "%15s %llu %llu %llu %llu %llu", name, &kernel_ns, &begin_ns, &end_ns, &each, &place);
    const struct mode *mode = mode_named(name);
    if (given == 2 && strcmp(name, "launch") == 0) {
        measure_launches(kernel_ns);
    } else if (given == 6 && kernel_ns && each && mode) {
        order = (struct order){kernel_ns, begin_ns, end_ns, each, place};
        work(mode);
    } else {
        printf("{\"error\": \"not understood\"}\n");
    }
}

int main(int count, char **arguments) {
    char line[256];
    if (count > 1 && strcmp(arguments[1], "rank") == 0)
        return rank_main(arguments);
    device_prepare(count > 1 && strcmp(arguments[1], "gpu") == 0);
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        obey(line);
        fflush(stdout);
    }
    return 0;
}
