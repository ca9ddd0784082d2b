/* Every way of taking GPU memory and of giving it back, drawn at random. */
#ifndef HAMMER_PATHS_H
#define HAMMER_PATHS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define PATHS(X)                                                                                             \
    X(alloc)                                                                                                 \
    X(pitch)                                                                                                 \
    X(managed)                                                                                               \
    X(array)                                                                                                 \
    X(array3d)                                                                                               \
    X(mipmap)                                                                                                \
    X(create)                                                                                                \
    X(map)                                                                                                   \
    X(export)                                                                                                \
    X(import)                                                                                                \
    X(async)                                                                                                 \
    X(pool)                                                                                                  \
    X(graph)                                                                                                 \
    X(capture)

#define PATH_NAME(name) PATH_##name,
enum path { PATHS(PATH_NAME) PATH_END };

/* One thing taken. */
struct item {
    enum path path;
    CUdeviceptr handle;  /* what the driver calls it; 0 once a mapped handle was released */
    CUdeviceptr address; /* where it is mapped; else 0 */
    CUgraph graph;       /* with what came of it; else NULL */
    CUgraphExec executable;
    uint64_t bytes;
};

#define MOST_ITEMS 32

struct hand {
    uint64_t random; /* state of the generator; never 0 */
    const unsigned *chosen;
    unsigned chosen_count; /* of the paths that may be drawn, as often as they shall be */
    unsigned largest_mib;
    CUdevice device;   /* of the current context */
    CUdevice other;    /* where memory without a context may lie as well */
    CUmemoryPool pool; /* on `device` */
    CUstream stream;   /* in the current context, for captures */
    int letters_out;   /* sockets by which descriptors of exported memory travel */
    int letters_in;
    unsigned item_count;
    struct item items[MOST_ITEMS];
};

struct tally {
    uint64_t granted, refused;
};

extern struct tally tallies[PATH_END]; /* atomic */
extern const char *const path_names[PATH_END];

/* Any result but success ends the program with a message. */
void must(CUresult result, const char *what);
#define MUST(call) must(call, #call)

/* Uniform in [0, end). */
unsigned draw(struct hand *hand, unsigned end);

/* Any result but these two ends the program with a message: nothing else can come of what it does. */
bool granted(CUresult result, const char *what);

/* Takes something, if the line allows and there is room to remember it; true if it does. */
bool take_any(struct hand *hand);

/* Gives one thing back. */
void give_back(struct hand *hand, unsigned index);
void give_back_all(struct hand *hand);

/* Calls that change how much pools keep: trims, thresholds, synchronisation, another current pool. */
void stir_pools(struct hand *hand);

/* Memory that graphs allocate: made by hand or captured, launched, and perhaps freed by the graph itself. */
CUresult take_by_graph(struct hand *hand, struct item *item);
void give_graph(struct hand *hand, const struct item *item);

/* After the context died: what lived in it is gone, what did not is given back. */
void forget_context(struct hand *hand);

#endif
