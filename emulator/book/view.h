/* The readers' view of the book: snapshots, utilisation samples, and the ring of injected events. */
#ifndef PLIMSOLL_EMULATOR_BOOK_VIEW_H
#define PLIMSOLL_EMULATOR_BOOK_VIEW_H

#include "book/state.h"

/* A reader's view of one process on one GPU. */
struct book_process {
    uint32_t pid; /* in the reader's PID namespace; 0 = not visible from there */
    uint32_t slot;
    uint32_t contexts;
    uint32_t gpu; /* the card or the MIG instance that the process is on */
    bool is_mps_client;
    uint64_t used_bytes, peak_bytes;
    uint64_t purpose_bytes[BOOK_PURPOSES];
    uint64_t busy_ns, spun_ns, unfinished_ns, launches;
    uint64_t claimed_ns;
    char name[BOOK_NAME_BYTES];
};

struct book_snapshot {
    uint64_t time_ns;    /* CLOCK_MONOTONIC */
    uint64_t used_bytes; /* by processes; the driver's reserved bytes come on top */
    uint64_t peak_bytes; /* highest used_bytes since the book was made */
    uint64_t busy_ns, spun_ns;
    uint32_t lost;
    uint32_t process_count;
    struct book_process processes[BOOK_MAX_SLOTS];
};

/* Copies the current state of one GPU, of a card in MIG mode with all its instances, after sweeping dead
 * processes and advancing the timeline. Costs microseconds per process. */
void book_look(struct book *book, int gpu, struct book_snapshot *snapshot);
/* Copies utilisation samples newer than `since_ns` (CLOCK_MONOTONIC), oldest first; returns how many. */
uint32_t book_samples(struct book *book, int gpu, uint64_t since_ns,
                      struct book_sample samples[BOOK_MAX_SAMPLES]);
/* Appends an event and wakes all waiting threads. */
void book_post_event(struct book *book, int gpu, uint64_t type, uint64_t data);
/* The sequence number of the latest event, from which a new listener starts. */
uint64_t book_event_cursor(struct book *book);
/* Waits for the next event after *cursor that `wanted` accepts. False after timeout_ms. */
bool book_next_event(struct book *book, uint64_t *cursor,
                     bool (*wanted)(const struct book_event *event, void *closure), void *closure,
                     unsigned timeout_ms, struct book_event *event);
/* Marks a card as fallen off the bus, or as back on it. Its MIG instances are lost with it. */
void book_set_lost(struct book *book, int gpu, bool lost);
bool book_is_lost(const struct book *book, int gpu);
/* Ends a MIG instance for NVML, or makes it again. */
void book_set_ended(struct book *book, int gpu, bool ended);
bool book_is_ended(const struct book *book, int gpu);
/* Injects a fault of a card. A reset ends all faults of a GPU, and brings it back on the bus. */
void book_set_fault(struct book *book, int gpu, enum book_fault fault, uint64_t value);
uint64_t book_fault(const struct book *book, int gpu, enum book_fault fault);
void book_reset(struct book *book, int gpu);
/* CLOCK_MONOTONIC of the last reset; 0 before any. */
uint64_t book_reset_ns(const struct book *book, int gpu);

#endif
