/* Commands that make processes, and those that show this one. */
#define _GNU_SOURCE
#include "asker.h"

#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* `exec PATH`: the same process, another image. Answers first, so that the next command is left for the
 * other. */
void do_exec(const char *path) {
    printf("0\n");
    fflush(stdout);
    execl(path, path, (char *)NULL);
    _exit(1);
}

static void print_end_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    printf("%d %d\n", (int)child, status);
}

/* `vfork PATH` and `spawn PATH`: a child that becomes another program; what that prints comes first. */
void do_vfork(const char *path) {
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        execl(path, path, (char *)NULL);
        _exit(1);
    }
    print_end_of(child);
}

extern char **environ;

void do_spawn(const char *path) {
    char copy[4096];
    char *arguments[] = {copy, NULL};
    pid_t child = -1;
    fflush(stdout);
    snprintf(copy, sizeof(copy), "%s", path);
    if (posix_spawn(&child, path, NULL, NULL, arguments, environ) != 0)
        child = -1;
    print_end_of(child);
}

/* `fork PATH`: a child that serves the commands in a file and prints their answers; then its exit code. */
void do_fork(const char *path) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        FILE *commands = fopen(path, "r");
        if (commands)
            serve(commands);
        fflush(stdout);
        _exit(0);
    }
    print_end_of(child);
}

void do_pid(const char *unused) {
    (void)unused;
    printf("%d\n", (int)getpid());
}
