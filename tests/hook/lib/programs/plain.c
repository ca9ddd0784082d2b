/* A program that never touches CUDA: prints how many lines of its memory map name `argv[1]`, its threads, and
 * its open files. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

static int entries(const char *path) {
    int count = 0;
    DIR *directory = opendir(path);
    while (directory && readdir(directory))
        count++;
    return count - 2;
}

int main(int argc, char **argv) {
    char line[1024];
    int named = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps))
        named += argc > 1 && strstr(line, argv[1]) != NULL;
    printf("%d %d %d\n", named, entries("/proc/self/task"), entries("/proc/self/fd"));
    return 0;
}
