/* Declarations for every command of the asker, and the commands that have a file of their own.
 *
 * Each reads its arguments and prints one line. */
#ifndef ASKER_H
#define ASKER_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <stdint.h>
#include <stdio.h>

typedef unsigned long long number;

/* A function of the loaded driver; without it the program says so and ends. */
void *find(const char *name);
#define FUNCTION(name) ((__typeof__(&name))(uintptr_t)find(#name))

/* Obeys commands until their end. */
void serve(FILE *from);

void do_exec(const char *path);
void do_vfork(const char *path);
void do_spawn(const char *path);
void do_fork(const char *path);
void do_pid(const char *unused);

void do_alloc(const char *text);
void do_free(const char *text);
void do_info(const char *unused);
void do_info_v1(const char *unused);
void do_total(const char *text);
void do_pool(const char *text);
void do_map(const char *text);
void do_unmap(const char *text);

/* `beside HANDLE BYTES`: maps imported memory, and behind it the handle's; unmaps both at once. */
void do_beside(const char *text);

#endif
