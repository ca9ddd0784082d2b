/* What is known of the work in each context: events of ours behind it, and what it takes.
 *
 * A burst of a context goes from the launch that found nothing unfinished to the end of the last one. Its end
 * is told by events, however late anybody looks: the event before its first launch names a moment that is
 * also known on the host's clock, and so the time between two events names any other.
 *
 * A burst that began while something unknown was unfinished (launched while the gate was open) has no such
 * event: it ends when it is seen to have ended.
 */
#ifndef PLIMSOLL_METERS_H
#define PLIMSOLL_METERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_api.h"

/* Contexts at once; one more passes the gate unmetered. */
#define PLIMSOLL_METERS 16
/* Events behind work under way in one context: at one for each 150 µs far more than may be queued. */
#define PLIMSOLL_MARKS 40
/* Streams of a context whose latest launches no event follows yet; a launch in one more gets its own. */
#define PLIMSOLL_TAILS 8

/* The stream of a mark behind all streams. */
#define PLIMSOLL_WHOLE_CONTEXT UINT64_MAX

/* An event of ours and what it covers. */
struct plimsoll_mark {
    CUevent event;
    uint64_t serial; /* tells this use of the event from the next */
    uint64_t stream; /* plimsoll_stream_key, or PLIMSOLL_WHOLE_CONTEXT */
    unsigned launches;
    uint64_t entered_ns;  /* the first of them */
    uint64_t recorded_ns; /* when */
    uint64_t due_ns;      /* when its launches should be done, by the average; 0: not known */
};

/* Launches in a stream that no event of ours follows yet. */
struct plimsoll_tail {
    uint64_t stream;
    unsigned launches;
    uint64_t entered_ns; /* the first of them */
};

/* One context. All under plimsoll.shares.lock, which nobody keeps over a call of the driver: who makes such a
 * call with this context's events is one of its `users` meanwhile. */
struct plimsoll_meter {
    uint64_t context; /* 0: this meter is free */
    uint64_t life;    /* another one for each context that it serves */
    unsigned users;
    unsigned launching;       /* launches between their two halves */
    bool is_looked_at;        /* some thread is asking the driver about the marks */
    bool is_broken;           /* the driver refused an event: launches pass unmetered */
    bool is_under_way;        /* a burst is */
    CUevent start;            /* recorded at start_ns; NULL where this burst has none */
    uint64_t start_ns;        /* CLOCK_MONOTONIC, as all times here */
    uint64_t begun_ns;        /* the burst's first launch */
    uint64_t begun_latest_ns; /* as late as that work may have begun */
    uint64_t launched;        /* in this burst */
    uint64_t ended_ns;        /* the latest end of work that is known in this burst; at least begun_ns */
    uint64_t entered_ns;      /* the latest launch */
    uint64_t average_ns;      /* what a launch takes; 0 while unknown */
    unsigned outstanding;     /* launches that are not known to be done */
    uint64_t stalled_ns;      /* when they were last seen to be overdue behind a shut gate; 0 for not */
    unsigned epoch;           /* up to which opening of the gate its work is known: plimsoll.shares.epoch */
    unsigned mark_count, tail_count, spare_count;
    struct plimsoll_mark marks[PLIMSOLL_MARKS]; /* in the order of their recording */
    struct plimsoll_tail tails[PLIMSOLL_TAILS];
    CUevent spares[PLIMSOLL_MARKS + 1];
};

/* Where this process stands with its gate. */
struct plimsoll_shares {
    pthread_mutex_t lock; /* for short sections: never over a call of the driver or of the kernel */
    struct plimsoll_meter meters[PLIMSOLL_METERS]; /* lock */
    uint64_t serial;                               /* lock; of marks and of meters' lives */
    uint32_t seen_word;                            /* lock; the gate's word as last seen by anybody */
    uint64_t seen_ns;                              /* lock; when it was first seen */
    unsigned epoch;              /* lock; how often the gate was seen to be open no longer */
    unsigned under_way;          /* atomic, changed under the lock; meters with a burst */
    uint64_t busy_ns;            /* lock; as in the slot */
    uint64_t busy_since_ns;      /* lock; likewise */
    uint64_t latest_end_ns;      /* lock; of the bursts that ended while others went on */
    uint64_t idle_since_ns;      /* lock; the end of the latest burst */
    int waiting;                 /* atomic; threads at the gate */
    uint32_t wanted_word;        /* atomic; the word under which a wait was last reported */
    uint32_t drained_word;       /* atomic; the latest under which nothing was left unfinished */
    bool is_lost;                /* atomic; no broker: the gate counts as open */
    uint32_t lost_beat;          /* atomic; `beat` at that moment */
    uint32_t lost_word;          /* atomic; the gate's word likewise */
    pthread_mutex_t report_lock; /* over one report: the order of reports is that of what they say */
    int connection;              /* report_lock; -1 for none */
    uint64_t connection_id[2];   /* report_lock; device and inode */
    bool is_report_owed;         /* atomic; the latest report found no broker */
    int keeper;                  /* atomic; enum plimsoll_keeper */
    int is_keeper_inside;        /* atomic; the keeper's thread is within the driver */
    int is_ending;               /* atomic; the process exits: the keeper stays out of the driver */
};

/* Around whatever takes a lock here or counts this thread in: a thread that is cancelled in between, in a
 * call of the kernel or of the driver, would take it along. Returns what plimsoll_release_thread gives back.
 */
int plimsoll_hold_thread(void);
void plimsoll_release_thread(int before);

/* Makes a context known, as soon as it is made; does nothing where there is no gate. */
void plimsoll_meters_add(uint64_t context);

/* The same of one that was forgotten and lives on: what it was given is not known. Nothing where it is known.
 */
void plimsoll_meters_keep(uint64_t context);

/* Before a context is destroyed, released or reset: nobody uses our events of it any more. Waits, shortly,
 * for those who do. */
void plimsoll_bursts_forget(uint64_t context);

void plimsoll_shares_in_child(void);

/* --- under plimsoll.shares.lock ------------------------------------------------------------------------ */

struct plimsoll_meter *plimsoll_meter_of(uint64_t context); /* NULL: unknown, and no room */

/* What tells streams apart: each thread's own default one has the same handle in all. */
uint64_t plimsoll_stream_key(CUstream stream);

/* The tail of that stream; NULL for none. */
struct plimsoll_tail *plimsoll_tail_of(struct plimsoll_meter *meter, uint64_t stream);
/* Ends it, returning what it was; without launches where there was none. */
struct plimsoll_tail plimsoll_tail_take(struct plimsoll_meter *meter, uint64_t stream);
/* Adds launches to a stream's tail, the first of them at that time; false where too many streams have such.
 */
bool plimsoll_tail_add(struct plimsoll_meter *meter, const struct plimsoll_tail *more);
/* All tails together. */
struct plimsoll_tail plimsoll_tail_sum(const struct plimsoll_meter *meter);

void plimsoll_spare(struct plimsoll_meter *meter, CUevent event);

/* --- with the lock released; the caller is one of the meter's users ------------------------------------- */

/* An event of the context, from its spares or new; NULL where the driver gives none. */
CUevent plimsoll_event_take(struct plimsoll_meter *meter);

#endif
