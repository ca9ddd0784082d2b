/* The common part of all restless programs. */
#ifndef RESTLESS_H
#define RESTLESS_H

#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { WORDS = 1024, SHORT_US = 50, LONG_US = 1000 };

/* One sort; `run` returns the number of its rounds. A list of sorts ends with one without a name. */
struct sort {
    const char *name;
    long (*run)(void);
};

extern const struct sort stream_sorts[], process_sorts[];

extern CUcontext context; /* the first GPU's primary context */
extern CUmodule module;
extern CUfunction kernel;    /* the kernel of `launch` */
extern const char *own_path; /* the path to start the program anew */

/* Whether there is time left. */
bool goes_on(void);

/* Ends the program with a message. */
void fail(const char *what, long got);

/* Any result but success ends the program with a message. */
void must(CUresult result, const char *what);
#define MUST(call) must(call, #call)

void launch(CUstream stream, uint64_t us);
CUstream stream_new(void);

/* Allocates this many words on the device. */
CUdeviceptr memory_new(void);

/* Checks that all words of a piece of memory hold the value. */
void check(CUdeviceptr address, uint32_t value, CUstream stream);

pthread_t start(void *(*body)(void *), void *argument);

/* The body of a thread that launches all the time on a stream of its own. */
void *launch_beside(void *unused);

#endif
