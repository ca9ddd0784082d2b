#include "book/cgroup.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#ifndef CGROUP2_SUPER_MAGIC
#define CGROUP2_SUPER_MAGIC 0x63677270
#endif

enum { PATH_BYTES = 4096 };

uint64_t cgroup_of(const char *path, bool *is_group) {
    struct stat status;
    struct statfs system;
    if (stat(path, &status) != 0 || statfs(path, &system) != 0)
        return 0;
    *is_group = S_ISDIR(status.st_mode) && system.f_type == CGROUP2_SUPER_MAGIC;
    return status.st_ino;
}

/* The path of this process's group of version 2, from the line `0::/path` of /proc/self/cgroup. */
static bool read_own_path(char path[PATH_BYTES]) {
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return false;
    while (!found && fgets(path, PATH_BYTES, file))
        found = strncmp(path, "0::", 3) == 0;
    fclose(file);
    if (found) {
        memmove(path, path + 3, strlen(path + 3) + 1);
        path[strcspn(path, "\n")] = '\0';
    }
    return found;
}

/* The directory at which cgroup2 is mounted, from its root on. */
static bool read_mount(char mount[PATH_BYTES]) {
    char line[PATH_BYTES + 512], root[PATH_BYTES];
    bool found = false;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (!file)
        return false;
    while (!found && fgets(line, sizeof line, file))
        found = strstr(line, " - cgroup2 ") && sscanf(line, "%*d %*d %*s %4095s %4095s", root, mount) == 2 &&
                strcmp(root, "/") == 0;
    fclose(file);
    return found;
}

void cgroup_own(uint64_t groups[BOOK_CGROUP_DEPTH]) {
    char path[PATH_BYTES], mount[PATH_BYTES], directory[2 * PATH_BYTES];
    memset(groups, 0, sizeof groups[0] * BOOK_CGROUP_DEPTH);
    if (!read_own_path(path) || !read_mount(mount))
        return;
    snprintf(directory, sizeof directory, "%s%s", mount, path);
    size_t root_length = strlen(mount);
    bool is_group = false;
    for (int depth = 0; depth < BOOK_CGROUP_DEPTH; depth++) {
        groups[depth] = cgroup_of(directory, &is_group);
        char *slash = strrchr(directory, '/');
        if (!slash || (size_t)(slash - directory) < root_length)
            return;
        *slash = '\0';
    }
}
