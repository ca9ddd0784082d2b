/* The current order and its results: time, chance, and the count of steps. */
#define _GNU_SOURCE
#include "tenant.h"

struct order order;
struct done done;
CUcontext context;
CUstream stream;

static uint64_t random_state, step_began_ns;

void sleep_until(uint64_t due_ns) {
    struct timespec due = {.tv_sec = (time_t)(due_ns / 1000000000), .tv_nsec = (long)(due_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) != 0)
        ;
}

void pause_for(uint64_t ns) {
    sleep_until(now_ns() + ns);
}

uint64_t between(uint64_t value, uint64_t least, uint64_t most) {
    return value < least ? least : value > most ? most : value;
}

void draw_anew(void) {
    random_state = 1;
}

/* Knuth, MMIX. */
double drawn(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) / (double)(1ull << 53);
}

void count_step(void) {
    uint64_t now = now_ns(), took_ns = now - step_began_ns;
    if (done.steps++ && took_ns > done.longest_step_ns)
        done.longest_step_ns = took_ns;
    step_began_ns = now;
}

void add_latency(uint64_t due_ns) {
    if (done.latency_count < MOST_LATENCIES)
        done.latencies_us[done.latency_count++] = (uint32_t)((now_ns() - due_ns) / 1000);
}
