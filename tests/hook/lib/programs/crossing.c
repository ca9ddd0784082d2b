/* The identity of a file of a device, by which exporter and importer know the same memory. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/exports.h"
#include "state.h"

#define CHECK(holds)                                                                                         \
    do {                                                                                                     \
        if (!(holds)) {                                                                                      \
            fprintf(stderr, "line %d: %s\n", __LINE__, #holds);                                              \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static int exported(uint64_t handle) {
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK(plimsoll_holdings_put(
        &plimsoll.holdings,
        (struct plimsoll_holding){.key = handle, .bytes = handle, .references = 1, .kind = HELD_HANDLE}));
    plimsoll_exported_file(HELD_HANDLE, handle, file);
    return file;
}

static uint64_t bytes_behind(int file) {
    uint16_t piece = plimsoll_import_begin(plimsoll_key_of_file(file));
    return piece ? plimsoll.exports->exports[piece - 1].bytes : 0;
}

/* A process that has the descriptors, by inheritance as by a message, finds each one's memory. */
static int check_in_child(const int *files) {
    CHECK(bytes_behind(files[0]) == 1 && bytes_behind(files[1]) == 2);
    CHECK(bytes_behind(dup(files[1])) == 2);
    CHECK(bytes_behind(open("/dev/null", O_RDWR | O_CLOEXEC)) == 0);
    return 0;
}

int main(void) {
    int status, again = open("/dev/null", O_RDWR | O_CLOEXEC);
    plimsoll.counts = calloc(1, sizeof(*plimsoll.counts));
    plimsoll.exports = calloc(1, sizeof(*plimsoll.exports));
    plimsoll.owner = 1;
    plimsoll.counts->slots_touched = 1;
    int files[] = {exported(1), exported(2)};
    plimsoll_exported_file(HELD_HANDLE, 1, again);
    CHECK(bytes_behind(again) == 1);
    if (fork() == 0)
        exit(check_in_child(files));
    CHECK(wait(&status) > 0 && status == 0);
    for (uint64_t handle = 3; handle <= 64; handle++)
        CHECK(bytes_behind(exported(handle)) == handle);
    CHECK(bytes_behind(exported(65)) == 0);
    return 0;
}
