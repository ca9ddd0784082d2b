/* What is known of the work in each context: events of ours between and behind its launches ("marks").
 *
 * A stream's work falls into segments. Within one, each piece is ready when the piece before it has ended, so
 * the stream executes from the segment's beginning to its end. A segment begins with the first launch into a
 * stream of which nothing is unfinished, or behind a host function, a callback or a wait, during which a
 * stream executes nothing. Marks stand behind the first launch and behind every few more. A beginning has a
 * mark only behind something that blocks: into an idle stream a mark would be given the process's slice, and
 * would give it away again before the launch comes.
 */
#ifndef PLIMSOLL_METERS_H
#define PLIMSOLL_METERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_api.h"
#include "pages.h"

/* Marks under way in one context. Many short segments need as many; a launch past them passes unmetered. */
#define PLIMSOLL_MARKS 256
/* Streams of a context that have work or are blocked; a launch in one more gets a mark of its own. */
#define PLIMSOLL_STREAMS 32
/* The key of a mark behind all streams of a context. */
#define PLIMSOLL_WHOLE_CONTEXT UINT64_MAX

struct plimsoll_mark {
    CUevent event;
    uint64_t serial;      /* tells this use of the event from the next */
    uint64_t stream;      /* plimsoll_stream_key, or PLIMSOLL_WHOLE_CONTEXT */
    uint64_t recorded_ns; /* just before it was recorded: it was not reached sooner */
    uint64_t entered_ns;  /* when the first launch was made that it follows, or precedes at a beginning */
    uint64_t due_ns;      /* when what it follows should be done; 0 where that is not known */
    unsigned launches;    /* since the mark before it */
    unsigned stands_for;  /* as many; of a sample, those before it too that were not sampled */
    bool is_begin;        /* a segment begins here */
    bool is_blocked;      /* and that stands behind something that executes nothing */
    bool is_first;        /* it follows the first launch of a segment without a mark at its beginning */
    bool is_reprieved;    /* standing.h */
};

struct plimsoll_stream {
    uint64_t key;
    unsigned tail;       /* launches that no mark follows yet */
    uint64_t entered_ns; /* the first of them */
    bool is_open;        /* its segment has begun, and is not known to have ended */
    bool is_fresh;       /* and no mark follows any launch of it yet */
    bool has_begin;      /* a mark stands at its beginning */
    bool is_blocked;     /* its next segment will stand behind something that executes nothing */
};

/* What a thread found out that asks the driver about the marks of a meter. For that thread alone. */
struct plimsoll_look {
    unsigned count;
    CUevent anchor;
    uint64_t seen_ns;
    bool is_failed;
    bool is_reached[PLIMSOLL_MARKS];
    int64_t since_anchor_ns[PLIMSOLL_MARKS]; /* of reached ones */
};

/* One context. All under plimsoll.shares.lock, which nobody keeps over a call of the driver. A thread that
 * makes such a call with this context's events is one of its `users` meanwhile. */
struct plimsoll_meter {
    struct plimsoll_meter *next; /* meters are never freed, but serve the next context */
    uint64_t context;            /* 0: this meter is free */
    uint64_t life;               /* another one for each context that it serves */
    int gpu;                     /* in `limits` */
    unsigned users;
    unsigned launching;   /* launches between their two halves */
    bool is_looked_at;    /* some thread is asking the driver about the marks, and may alone remove any */
    bool is_broken;       /* the driver refused an event for good: launches pass unmetered */
    CUevent anchor;       /* a mark that was reached at anchor_ns, by which others are dated; NULL for none */
    uint64_t anchor_ns;   /* CLOCK_MONOTONIC, as all times here */
    uint64_t narrowed_ns; /* when a look last told about the anchor */
    uint64_t reached_ns;  /* the latest moment at which a mark was reached */
    uint64_t entered_ns;  /* the latest launch */
    uint64_t average_ns;  /* what a launch executes; 0 while unknown */
    unsigned learned;     /* marks that it was learned from */
    unsigned mark_count, stream_count, spare_count;
    struct plimsoll_mark marks[PLIMSOLL_MARKS]; /* in the order of their recording */
    struct plimsoll_stream streams[PLIMSOLL_STREAMS];
    CUevent spares[PLIMSOLL_MARKS + 2];
    struct plimsoll_look look;
};

/* Work of this process on one GPU, as its page tells it (plimsoll/broker/pages.py, Work). */
struct plimsoll_burst {
    uint64_t launched_ns; /* 0: nothing is unfinished */
    uint64_t executed_ns; /* 0: not known to have begun */
    bool is_presumed;     /* the moment before is a guess, as no mark was reached yet */
    uint64_t ended_ns;    /* the latest end that is known of it */
    unsigned ending;      /* contexts that are being ended with work under way */
    uint64_t unfinished_ns, sure_ns, sliced_ns;
};

/* Where this process stands with its gate. */
struct plimsoll_shares {
    pthread_mutex_t lock;          /* for short sections: never over a call of the driver or a sleep */
    struct plimsoll_meter *meters; /* lock; only grows */
    struct plimsoll_burst bursts[PLIMSOLL_MAX_GPUS]; /* lock */
    uint64_t serial;                                 /* lock; of marks and of meters' lives */
    bool is_metering;       /* lock; the gate was last seen not to be open: bursts are told */
    unsigned vain;          /* lock; stands in vain since nothing executed */
    bool is_following;      /* lock; one did while only other processes of the container execute */
    double slower;          /* lock; how much longer queues take than expected, at least 1 */
    uint64_t looked_ns;     /* atomic; when marks were last looked at */
    uint32_t passes_left;   /* atomic, and raced for on purpose; launches until one is sampled (sampling.c) */
    uint32_t passes_each;   /* atomic; between two samples */
    bool is_lost;           /* atomic; no broker: the gate counts as open */
    int keeper;             /* atomic; keeper.c */
    bool is_keeper_resting; /* atomic; it sleeps until it is stirred, or for long */
    int is_keeper_inside;   /* atomic; the keeper's thread is within the driver */
    int is_ending;          /* atomic; the process exits: the keeper stays out of the driver */
};

/* Around whatever takes a lock here or counts this thread in: a thread that is cancelled in between, in a
 * call of the kernel or of the driver, would take it along. Returns what plimsoll_release_thread gives back.
 */
int plimsoll_hold_thread(void);
void plimsoll_release_thread(int before);

/* Before a context is destroyed, released or reset: nobody uses our events of it any more. Waits, shortly,
 * for those who do. What it has unfinished counts as executing until `plimsoll_bursts_forgotten`, after the
 * driver's call, which may wait for it. Returns the GPU to tell that; -1 if nothing is unfinished. */
int plimsoll_bursts_forget(uint64_t context);
void plimsoll_bursts_forgotten(int gpu);

/* After a context ended unseen: its events are gone with it. */
void plimsoll_bursts_lost(uint64_t context);

/* After that, where the context lives on: whatever it has unfinished is metered by one mark behind it all. */
void plimsoll_bursts_resume(uint64_t context, int gpu);

void plimsoll_shares_in_child(void);

/* --- under plimsoll.shares.lock ------------------------------------------------------------------------ */

/* The meter of a context on a GPU of `limits`; NULL where there is no memory for one. */
struct plimsoll_meter *plimsoll_meter_of(uint64_t context, int gpu);

/* Tells streams apart: each thread's own default one has the same handle in all. */
uint64_t plimsoll_stream_key(CUstream stream);

/* NULL: not known. */
struct plimsoll_stream *plimsoll_stream_in(struct plimsoll_meter *meter, uint64_t key);
/* The same, made known where there is room. */
struct plimsoll_stream *plimsoll_stream_for(struct plimsoll_meter *meter, uint64_t key);
/* Forgets a stream of which nothing is unfinished and which nothing blocks. */
void plimsoll_stream_drop(struct plimsoll_meter *meter, struct plimsoll_stream *stream);

/* The length of a launch of the context, by the average; more where others wait behind one that is longer. */
uint64_t plimsoll_each_ns(const struct plimsoll_meter *meter, uint64_t now_ns);
/* Whether one can tell what the outstanding ones will take: not before the first few of a context have ended,
 * nor while the foremost of many in one stream should have ended long ago. */
bool plimsoll_is_known(const struct plimsoll_meter *meter, uint64_t now_ns);
/* Launches of these whose streams nothing holds up; those that no mark follows are left out. */
unsigned plimsoll_runnable(const struct plimsoll_meter *meter);
/* Whether anything is not known to be done, executing or not. */
bool plimsoll_has_work(void);
/* Launches that are not known to be done. */
unsigned plimsoll_outstanding(const struct plimsoll_meter *meter);
/* For how long what is outstanding will execute at least: each launch as long as the average, and longer
 * behind one that is. */
uint64_t plimsoll_left_ns(const struct plimsoll_meter *meter, uint64_t now_ns);
/* The time that all meters' outstanding launches on one GPU should take together, by their averages. */
uint64_t plimsoll_queued_ns(int gpu);

void plimsoll_spare(struct plimsoll_meter *meter, CUevent event);

/* --- with the lock released; the caller is one of the meter's users ------------------------------------- */

/* An event of the context, from its spares or new; NULL where the driver gives none. */
CUevent plimsoll_event_take(struct plimsoll_meter *meter);

#endif
