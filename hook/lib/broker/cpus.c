/* Binds a container's programs to the CPUs near its GPUs, if the pod wants that: Gaia's binding of GPU and
 * CPU (S. Song et al., ISPA 2018, §III.A).
 *
 * The binding is made when a program starts, and not at its first call of the driver: threads and processes
 * inherit it from those that make them. Constructors of other libraries may have started threads before, so
 * it is made for every thread that is there. The kernel keeps it within the container's own cpuset, and a
 * program may narrow or leave it. Without it the program only runs slower, so nothing here fails. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "broker/broker.h"
#include "clock.h"
#include "say.h"

static bool read_page(const char *directory, struct plimsoll_cpus *page) {
    char path[sizeof(plimsoll.limits_dir) + 16];
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", directory, PLIMSOLL_CPUS_NAME) >= sizeof(path))
        return false;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false; /* the pod does not ask for it */
    bool is_whole = read(file, page, sizeof(*page)) == (ssize_t)sizeof(*page);
    close(file);
    return is_whole && page->magic == PLIMSOLL_CPUS_MAGIC && page->version == PLIMSOLL_VERSION &&
           page->size == sizeof(*page);
}

static bool has_cpu(const struct plimsoll_cpus *page, unsigned cpu) {
    return cpu < PLIMSOLL_MOST_CPUS && (page->words[cpu / 64] >> cpu % 64 & 1) != 0;
}

/* A thread keeps the CPUs that it may use if none of them is near: a program that its user bound elsewhere.
 */
static void bind_thread(pid_t thread, const struct plimsoll_cpus *page) {
    cpu_set_t allowed;
    if (sched_getaffinity(thread, sizeof(allowed), &allowed) != 0)
        return;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (!has_cpu(page, cpu))
            CPU_CLR(cpu, &allowed);
    if (CPU_COUNT(&allowed) > 0)
        sched_setaffinity(thread, sizeof(allowed), &allowed);
}

static void bind_threads(const struct plimsoll_cpus *page) {
    DIR *threads = opendir("/proc/self/task");
    if (!threads) {
        bind_thread(0, page);
        return;
    }
    for (const struct dirent *each; (each = readdir(threads));)
        if (each->d_name[0] != '.')
            bind_thread((pid_t)strtol(each->d_name, NULL, 10), page);
    closedir(threads);
}

/* The one function that runs at the start of every program. */
__attribute__((constructor)) static void begin_program(void) {
    int saved = errno;
    struct plimsoll_cpus page;
    const char *directory = plimsoll_find_limits();
    if (directory)
        plimsoll_clock_find();
    if (directory && read_page(directory, &page))
        bind_threads(&page);
    errno = saved;
}
