/* The state of compute shares: what is known of the work in each context, and where this process stands with
 * its gate. The functions are in the other files of this folder. */
#ifndef PLIMSOLL_SHARES_H
#define PLIMSOLL_SHARES_H

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

struct plimsoll_captures {
    unsigned under_way; /* atomic; captures begun, or about to be, and not ended */
    unsigned looks;     /* atomic; questions under way, or about to be */
};

#endif
