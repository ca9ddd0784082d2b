/* A time namespace shifts CLOCK_MONOTONIC, CLOCK_BOOTTIME, and with it the start times in /proc. Broker and
 * library may run in different ones. /proc/self/timens_offsets shows the shifts of the namespace that
 * children enter. That is this process's own at its start and after a fork, and no longer once the process
 * has called unshare. A process can move itself only while it has one thread. */
#include "clock.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct plimsoll_clock plimsoll_clock;

static bool is_own_namespace(void) {
    struct stat own, of_children;
    return stat("/proc/self/ns/time", &own) == 0 &&
           stat("/proc/self/ns/time_for_children", &of_children) == 0 && own.st_ino == of_children.st_ino;
}

/* One line of the file: name, seconds, nanoseconds. Only the seconds may be negative. */
static int64_t shift_of(const char *text, const char *name) {
    const char *line = strstr(text, name);
    if (!line)
        return 0;
    char *end;
    long long seconds = strtoll(line + strlen(name), &end, 10);
    return seconds * 1000000000ll + strtoll(end, NULL, 10);
}

void plimsoll_clock_find(void) {
    char text[256];
    int file = open("/proc/self/timens_offsets", O_RDONLY | O_CLOEXEC);
    if (file < 0) /* older than Linux 5.6, where all processes read one clock */
        return;
    ssize_t length = read(file, text, sizeof(text) - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    if (is_own_namespace())
        plimsoll_clock =
            (struct plimsoll_clock){(uint64_t)shift_of(text, "monotonic"), shift_of(text, "boottime")};
}
