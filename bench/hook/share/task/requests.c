/* Modes that serve requests. Each latency begins at the moment at which the request was due.
 *
 *   infer   2 ms of work every `each` ns
 *   light   one kernel every `each` ns, give or take a tenth, from a moment of its own. A request that comes
 *           during the service of the one before is due when that is done
 *   random  one kernel per request. Requests come at random, `each` ns apart in the mean, and queue up
 *   loop    one kernel, and a pause of `each` ns after its end */
#define _GNU_SOURCE
#include "tenant.h"

#include <math.h>

#define INFER_NS (2 * MS)

static void serve(uint64_t due_ns, uint64_t kernels) {
    for (uint64_t i = 0; i < kernels; i++)
        launch(order.kernel_ns);
    MUST(cuStreamSynchronize(stream));
    done.kernels += kernels;
    count_step();
    add_latency(due_ns);
}

static void work_infer(void) {
    uint64_t kernels = between(INFER_NS / order.kernel_ns, 1, INFER_NS);
    for (uint64_t due_ns = order.begin_ns; due_ns < order.end_ns; due_ns += order.each) {
        sleep_until(due_ns);
        serve(due_ns, kernels);
    }
}

static uint64_t part_of_period(double part) {
    return (uint64_t)(part * (double)order.each);
}

static void work_light(void) {
    for (uint64_t i = 0; i < order.place; i++)
        (void)drawn();
    uint64_t due_ns = order.begin_ns + part_of_period(drawn());
    while (due_ns < order.end_ns) {
        sleep_until(due_ns);
        serve(due_ns, 1);
        due_ns = between(due_ns + part_of_period(0.9 + 0.2 * drawn()), now_ns(), UINT64_MAX);
    }
}

static void work_random(void) {
    uint64_t due_ns = order.begin_ns;
    while ((due_ns += part_of_period(-log(1 - drawn()))) < order.end_ns) {
        sleep_until(due_ns);
        serve(due_ns, 1);
    }
}

static void work_loop(void) {
    for (uint64_t due_ns = now_ns(); due_ns < order.end_ns; due_ns = now_ns() + order.each) {
        sleep_until(due_ns);
        serve(due_ns, 1);
    }
}

const struct mode request_modes[] = {
    {"infer", work_infer, false}, {"light", work_light, false}, {"random", work_random, false},
    {"loop", work_loop, false},   {NULL, NULL, false},
};
