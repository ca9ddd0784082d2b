/* The device: its kernels, streams with few steps queued, and on a real GPU its own sum of the time in which
 * kernels worked. The emulator's book has that sum elsewhere. */
#define _GNU_SOURCE
#include "tenant.h"

#include <pthread.h>
#include <string.h>

#define SAMPLE_NS (50 * MS)
#define MOST_SAMPLES 65536
#define QUEUED_GAP_NS 20000ull /* longer than from one queued kernel to the next */

/* `busy` works for as many nanoseconds as its parameter says. It counts the GPU's time and not the clock's:
 * between two readings of the timer at most 20 us count as work, as a kernel with a later reading was
 * switched out for another process. If `page` is set, `busy` writes the time worked there, each millisecond
 * and at its end. The way from one queued kernel to the next, if it is no longer than `gap`, counts as work.
 *
 * `spin` stores `start_value` at `start`, unless that is 0, waits until the word at `address` has come to
 * `value`, and then works for `duration`. */
static const char ptx[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .global .u64 page;\n"
    ".visible .global .u64 gap;\n"
    ".visible .global .u64 worked;\n"
    ".visible .global .u64 ended;\n"
    ".visible .entry busy(.param .u64 duration)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b64 %length, %page, %start, %now, %last, %told, %step, %worked, %done, %sum;\n"
    "    ld.param.u64 %length, [duration];\n"
    "    mov.u64 %start, %globaltimer;\n"
    "    ld.global.u64 %page, [page];\n"
    "    ld.global.u64 %last, [ended];\n"
    "    ld.global.u64 %step, [gap];\n"
    "    ld.global.u64 %worked, [worked];\n"
    "    sub.u64 %sum, %start, %last;\n"
    "    setp.gt.u64 %p, %sum, %step;\n"
    "    selp.u64 %sum, 0, %sum, %p;\n"
    "    add.u64 %worked, %worked, %sum;\n"
    "    mov.u64 %done, 0;\n"
    "    mov.u64 %last, %start;\n"
    "    mov.u64 %told, %start;\n"
    "again:\n"
    "    mov.u64 %now, %globaltimer;\n"
    "    sub.u64 %step, %now, %last;\n"
    "    min.u64 %step, %step, 20000;\n"
    "    add.u64 %done, %done, %step;\n"
    "    mov.u64 %last, %now;\n"
    "    sub.u64 %step, %now, %told;\n"
    "    setp.lt.u64 %p, %step, 1000000;\n"
    "    @%p bra quiet;\n"
    "    mov.u64 %told, %now;\n"
    "    setp.eq.u64 %p, %page, 0;\n"
    "    @%p bra quiet;\n"
    "    add.u64 %sum, %worked, %done;\n"
    "    st.volatile.global.u64 [%page], %sum;\n"
    "quiet:\n"
    "    setp.lt.u64 %p, %done, %length;\n"
    "    @%p bra again;\n"
    "    setp.eq.u64 %p, %page, 0;\n"
    "    @%p bra untold;\n"
    "    add.u64 %sum, %worked, %done;\n"
    "    st.global.u64 [worked], %sum;\n"
    "    st.volatile.global.u64 [%page], %sum;\n"
    "    st.global.u64 [ended], %now;\n"
    "untold:\n"
    "    ret;\n"
    "}\n"
    ".visible .entry spin(.param .u64 duration, .param .u64 address, .param .u32 value,\n"
    "                     .param .u64 start, .param .u32 start_value)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b32 %value, %seen;\n"
    "    .reg .b64 %length, %word, %begin, %now;\n"
    "    ld.param.u64 %word, [start];\n"
    "    setp.eq.u64 %p, %word, 0;\n"
    "    @%p bra started;\n"
    "    ld.param.u32 %value, [start_value];\n"
    "    st.volatile.global.u32 [%word], %value;\n"
    "started:\n"
    "    ld.param.u64 %word, [address];\n"
    "    ld.param.u32 %value, [value];\n"
    "wait:\n"
    "    ld.volatile.global.u32 %seen, [%word];\n"
    "    sub.s32 %seen, %seen, %value;\n"
    "    setp.lt.s32 %p, %seen, 0;\n"
    "    @%p bra wait;\n"
    "    ld.param.u64 %length, [duration];\n"
    "    mov.u64 %begin, %globaltimer;\n"
    "again:\n"
    "    mov.u64 %now, %globaltimer;\n"
    "    sub.u64 %now, %now, %begin;\n"
    "    setp.lt.u64 %p, %now, %length;\n"
    "    @%p bra again;\n"
    "    ret;\n"
    "}\n";

static CUfunction kernel;

/* The device's sum, read by a thread of this program. */
static struct {
    volatile uint64_t *page;
    CUdeviceptr gap;
    pthread_t thread;
    volatile bool stop;
    size_t count;
    uint64_t time_ns[MOST_SAMPLES], worked_ns[MOST_SAMPLES];
} seen;

void launch_on(CUfunction function, CUstream on, uint64_t length_ns) {
    void *parameters[] = {&length_ns};
    MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, on, parameters, NULL));
}

void launch(uint64_t length_ns) {
    launch_on(kernel, stream, length_ns);
}

void launch_spin(CUfunction function, CUstream on, struct spin spin) {
    void *parameters[] = {&spin.length_ns, &spin.address, &spin.value, &spin.start, &spin.started};
    MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, on, parameters, NULL));
}

CUstream stream_new(void) {
    CUstream made;
    MUST(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
}

struct queue queue_new(CUstream on, unsigned ahead) {
    struct queue queue = {.stream = on, .ahead = ahead};
    for (unsigned i = 0; i < ahead; i++)
        MUST(cuEventCreate(&queue.ends[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    return queue;
}

void queue_wait(const struct queue *queue, uint64_t step) {
    if (step > queue->ahead)
        MUST(cuEventSynchronize(queue->ends[step % queue->ahead]));
}

void queue_mark(const struct queue *queue, uint64_t step) {
    MUST(cuEventRecord(queue->ends[step % queue->ahead], queue->stream));
}

void queue_free(const struct queue *queue) {
    MUST(cuStreamSynchronize(queue->stream));
    for (unsigned i = 0; i < queue->ahead; i++)
        MUST(cuEventDestroy(queue->ends[i]));
}

static void *watch(void *unused) {
    (void)unused;
    for (uint64_t due_ns = order.begin_ns; !seen.stop && seen.count < MOST_SAMPLES; due_ns += SAMPLE_NS) {
        sleep_until(due_ns);
        seen.time_ns[seen.count] = now_ns();
        seen.worked_ns[seen.count++] = *seen.page;
    }
    return NULL;
}

/* Between the end of a synchronised launch and the next launch the GPU is idle, for however short a time. */
void device_watch(bool is_queued) {
    uint64_t gap_ns = is_queued ? QUEUED_GAP_NS : 0;
    seen.count = 0;
    seen.stop = false;
    if (!seen.page)
        return;
    MUST(cuMemcpyHtoD(seen.gap, &gap_ns, sizeof gap_ns));
    if (pthread_create(&seen.thread, NULL, watch, NULL) != 0)
        exit(3);
}

void device_unwatch(void) {
    seen.stop = true;
    if (seen.page)
        pthread_join(seen.thread, NULL);
}

void device_print_samples(void) {
    for (size_t i = 0; i < seen.count; i++)
        printf("%s[%llu, %llu]", i ? ", " : "", (unsigned long long)seen.time_ns[i],
               (unsigned long long)seen.worked_ns[i]);
}

/* Loads into the current context; each context has a module of its own. */
CUfunction device_kernel(const char *name) {
    CUmodule module;
    CUfunction function;
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&function, module, name));
    return function;
}

static CUdeviceptr variable(CUmodule module, const char *name) {
    CUdeviceptr address;
    size_t bytes;
    MUST(cuModuleGetGlobal(&address, &bytes, module, name));
    return address;
}

static void share_page(CUmodule module) {
    CUdeviceptr address;
    void *host;
    MUST(cuMemHostAlloc(&host, sizeof(uint64_t), CU_MEMHOSTALLOC_DEVICEMAP));
    memset(host, 0, sizeof(uint64_t));
    MUST(cuMemHostGetDevicePointer(&address, host, 0));
    MUST(cuMemcpyHtoD(variable(module, "page"), &address, sizeof address));
    seen.gap = variable(module, "gap");
    seen.page = host;
}

void device_prepare(bool is_gpu) {
    CUdevice device;
    CUmodule module;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&kernel, module, "busy"));
    stream = stream_new();
    if (is_gpu)
        share_page(module);
}
