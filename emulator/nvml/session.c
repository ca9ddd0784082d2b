/* Start and stop of the library, and the checks of every call.
 *
 * nvmlInit reads the node file named by PLIMSOLL_EMULATOR and maps the book beside it. Calls are counted,
 * as in the real library: after the last nvmlShutdown every call returns UNINITIALIZED. The book stays
 * mapped even then: a thread may still be in a call, and closing the state file would drop the record lock
 * by which a CUDA library in this process shows that it lives. */
#include "nvml/session.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "book/call_faults.h"
#include "book/node/file.h"

struct nvmlDevice_st {
    char unused; /* only the handle's address matters */
};

static struct {
    pthread_mutex_t lock;   /* held by init and shutdown alone */
    atomic_uint open_count; /* inits not yet shut down; changed under lock */
    bool mapped;            /* lock */
    int64_t wall_offset_ns; /* written under lock while open_count is 0 */
    struct book book;       /* written under lock while open_count is 0 */
    struct nvmlDevice_st devices[NODE_MAX_GPUS];
} session = {.lock = PTHREAD_MUTEX_INITIALIZER};

const struct node_file *nvml_node(void) {
    return &session.book.node;
}

struct book *nvml_book(void) {
    return &session.book;
}

bool nvml_is_initialized(void) {
    return atomic_load(&session.open_count) > 0;
}

nvmlDevice_t nvml_handle_of(int index) {
    return &session.devices[index];
}

static bool is_shown(int card) {
    for (int i = 0; i < nvml_node()->shown_count; i++)
        if (nvml_node()->shown[i] == card)
            return true;
    return false;
}

nvmlReturn_t nvml_find_place(nvmlDevice_t device, const void *output, int *index) {
    if (!nvml_is_initialized())
        return NVML_ERROR_UNINITIALIZED;
    for (int place = 0; output && place < nvml_node()->place_count; place++) {
        if (device == &session.devices[place] && is_shown(nvml_node()->gpus[place].card) &&
            !book_is_ended(nvml_book(), place)) {
            *index = place;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvml_find_gpu(nvmlDevice_t device, const void *output, int *index) {
    nvmlReturn_t found = nvml_find_place(device, output, index);
    if (found == NVML_SUCCESS && node_is_instance(&nvml_node()->gpus[*index]))
        return NVML_ERROR_NOT_SUPPORTED;
    return found;
}

nvmlReturn_t nvml_find_description(nvmlDevice_t device, const void *output, const struct node_gpu **gpu) {
    int index;
    nvmlReturn_t found = nvml_find_gpu(device, output, &index);
    if (found == NVML_SUCCESS)
        *gpu = &nvml_node()->gpus[index];
    return found;
}

nvmlReturn_t nvml_find_place_description(nvmlDevice_t device, const void *output,
                                         const struct node_gpu **gpu) {
    int index;
    nvmlReturn_t found = nvml_find_place(device, output, &index);
    if (found == NVML_SUCCESS)
        *gpu = &nvml_node()->gpus[index];
    return found;
}

nvmlReturn_t nvml_find_present_gpu_for(const char *function, nvmlDevice_t device, const void *output,
                                       int *index) {
    nvmlReturn_t found = nvml_find_gpu(device, output, index);
    return found == NVML_SUCCESS ? nvml_find_present_place_for(function, device, output, index) : found;
}

nvmlReturn_t nvml_find_present_place_for(const char *function, nvmlDevice_t device, const void *output,
                                         int *index) {
    nvmlReturn_t found = nvml_find_place(device, output, index);
    if (found != NVML_SUCCESS)
        return found;
    uint32_t error = book_suffer_call_fault(nvml_book(), *index, function);
    if (error)
        return (nvmlReturn_t)error;
    return book_is_lost(nvml_book(), *index) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t nvml_give_text(const char *text, char *buffer, unsigned length) {
    if (!buffer)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(buffer, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

unsigned long long nvml_stamp_us(uint64_t monotonic_ns) {
    return (unsigned long long)((int64_t)monotonic_ns + session.wall_offset_ns) / 1000;
}

uint64_t nvml_unstamp_ns(unsigned long long stamp_us) {
    /* The last nanosecond of the microsecond, so that "newer than" excludes the stamped sample itself. */
    int64_t monotonic_ns;
    if (stamp_us > INT64_MAX / 1000 - 1)
        return UINT64_MAX;
    monotonic_ns = (int64_t)stamp_us * 1000 + 999 - session.wall_offset_ns;
    return monotonic_ns < 0 ? 0 : (uint64_t)monotonic_ns;
}

/* True while the mapped book is the one beside this process's node file. */
static bool is_current(void) {
    const char *path = node_file_path();
    char state_path[NODE_PATH_BYTES + sizeof ".state"];
    struct stat mapped, wanted;
    if (!session.mapped || !path || strcmp(path, session.book.node.path) != 0)
        return false;
    snprintf(state_path, sizeof state_path, "%s.state", path);
    return fstat(session.book.fd, &mapped) == 0 && stat(state_path, &wanted) == 0 &&
           mapped.st_dev == wanted.st_dev && mapped.st_ino == wanted.st_ino;
}

static void measure_wall_offset(void) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    session.wall_offset_ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec - (int64_t)book_now_ns();
}

static nvmlReturn_t open_session(void) {
    char message[NODE_MESSAGE_BYTES];
    if (is_current())
        return NVML_SUCCESS;
    session.mapped = book_open(&session.book, message);
    if (!session.mapped) {
        fprintf(stderr, "emulator: %s\n", message);
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    measure_wall_offset();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags; /* NO_GPUS and NO_ATTACH change nothing: a node file has at least one GPU */
    pthread_mutex_lock(&session.lock);
    nvmlReturn_t opened = nvml_is_initialized() ? NVML_SUCCESS : open_session();
    if (opened == NVML_SUCCESS)
        atomic_fetch_add(&session.open_count, 1);
    pthread_mutex_unlock(&session.lock);
    return opened;
}

nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void) {
    pthread_mutex_lock(&session.lock);
    nvmlReturn_t closed = nvml_is_initialized() ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (closed == NVML_SUCCESS)
        atomic_fetch_sub(&session.open_count, 1);
    pthread_mutex_unlock(&session.lock);
    return closed;
}
