/* The state of compute shares: the meters of this process's contexts, its bursts, and its use of the gate.
 * The other files of this folder hold the functions. */
#ifndef PLIMSOLL_SHARES_H
#define PLIMSOLL_SHARES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_api.h"
#include "pages.h"

/* The most marks under way in one context. Many short segments need that many. Launches beyond them pass
 * unmetered. */
#define PLIMSOLL_MARKS 256

/* The most streams of a context that have work or are blocked. A launch into one more gets a mark of its
 * own. */
#define PLIMSOLL_STREAMS 32

/* The key of a mark behind all streams of a context. */
#define PLIMSOLL_WHOLE_CONTEXT UINT64_MAX

struct plimsoll_mark {
    CUevent event;
    uint64_t serial;      /* tells this use of the event from the next one */
    uint64_t stream;      /* plimsoll_stream_key, or PLIMSOLL_WHOLE_CONTEXT */
    uint64_t recorded_ns; /* just before the event was recorded: the mark was not reached before */
    uint64_t entered_ns;  /* when the first launch that the mark follows was made; at a beginning, the launch
                             that the mark precedes */
    uint64_t due_ns;      /* when the work before the mark should be done; 0 where that is not known */
    unsigned launches;    /* launches since the mark before */
    unsigned stands_for;  /* the same; a sample stands for the launches before it too */
    bool is_begin;        /* a segment begins here */
    bool is_blocked;      /* and the segment is behind something that blocks the stream */
    bool is_first;     /* the mark follows the first launch of a segment that has no mark at its beginning */
    bool is_reprieved; /* other launches may pass until this mark is reached: standing.c */
};

struct plimsoll_stream {
    uint64_t key;
    unsigned tail;       /* launches that no mark follows yet */
    uint64_t entered_ns; /* when the first launch of the tail was made */
    bool is_open;        /* the segment has begun, and is not known to have ended */
    bool is_fresh;       /* and no mark follows any of its launches yet */
    bool has_begin;      /* a mark stands at the segment's beginning */
    bool is_blocked;     /* the next segment will be behind something that blocks the stream */
};

/* The results of one poll of a meter's marks. Only the polling thread uses them. */
struct plimsoll_poll {
    unsigned count;
    CUevent anchor;
    uint64_t begun_ns, seen_ns;
    bool is_failed;
    bool is_reached[PLIMSOLL_MARKS];
    uint64_t reached_by_ns[PLIMSOLL_MARKS];  /* valid for reached marks, until one is removed */
    int64_t since_anchor_ns[PLIMSOLL_MARKS]; /* valid for reached marks */
};

/* The meter of one context. Every field needs plimsoll.shares.lock, with two exceptions: `next` never changes
 * once the meter is in the list, and the polling thread reads the marks that it polls. Nobody holds the lock
 * during a call of the driver. A thread that makes such a call with this context's events is one of the
 * `users` during the call. */
struct plimsoll_meter {
    struct plimsoll_meter *next; /* meters are never freed, but serve the next context */
    uint64_t context;            /* 0: this meter is free */
    uint64_t life;               /* another number for each context that the meter serves */
    int gpu;                     /* index in `limits` */
    unsigned users;
    unsigned launching; /* launches between their two halves */
    bool is_polled;     /* a thread polls the marks now; only that thread may remove marks */
    bool is_broken;     /* the driver refused an event for good: launches pass unmetered */
    CUevent anchor; /* a mark that was reached at anchor_ns, by which other marks are dated; NULL for none */
    uint64_t anchor_ns;   /* CLOCK_MONOTONIC, as all times here */
    uint64_t narrowed_ns; /* when a poll last corrected anchor_ns */
    uint64_t reached_ns;  /* the latest time at which a mark was reached */
    uint64_t entered_ns;  /* the time of the latest launch */
    uint64_t average_ns;  /* execution time of one launch; 0 while unknown */
    unsigned learned;     /* marks that the average was learned from */
    unsigned mark_count, stream_count, spare_count;
    struct plimsoll_mark marks[PLIMSOLL_MARKS]; /* in the order of their recording */
    struct plimsoll_stream streams[PLIMSOLL_STREAMS];
    CUevent spares[PLIMSOLL_MARKS + 2];
    struct plimsoll_poll poll;
};

/* The work of this process on one GPU, as its page reports it (plimsoll/broker/pages.py, Work). */
struct plimsoll_burst {
    uint64_t launched_ns; /* 0: nothing is unfinished */
    uint64_t executed_ns; /* 0: execution is not known to have begun */
    bool is_presumed;     /* executed_ns is a guess, because no mark was reached yet */
    uint64_t ended_ns;    /* the latest known end of any work in the burst */
    unsigned ending;      /* contexts that are being ended while they have work under way */
    uint64_t unfinished_ns, sure_ns, sliced_ns;
};

/* The use that this process makes of its gate. */
struct plimsoll_shares {
    pthread_mutex_t lock;          /* for short sections: never held during a call of the driver or a sleep */
    struct plimsoll_meter *meters; /* lock; the list only grows */
    struct plimsoll_burst bursts[PLIMSOLL_MAX_GPUS]; /* lock */
    uint64_t serial;   /* lock; the last number given to a mark or to a meter's life */
    bool is_metering;  /* atomic, changed under lock; the gate was not open when last read: the page reports
                          bursts */
    unsigned vain;     /* lock; launches that stood in vain since the container last executed nothing */
    bool is_following; /* lock; a launch stood in vain while only other processes of the container executed */
    double slower;     /* lock; the factor by which queues take longer than expected, at least 1 */
    uint32_t passes_left;   /* atomic, raced for on purpose; launches until the next sample (sampling.c) */
    uint32_t passes_each;   /* atomic; launches between two samples */
    bool is_lost;           /* atomic; the broker is lost: the gate counts as open */
    uint64_t asked_ns;      /* atomic; when the process last asked whether the broker is gone */
    uint64_t last_beat_ns;  /* atomic; the beat after which the broker was gone */
    int keeper;             /* atomic; the state of the keeper's thread (keeper.c) */
    bool is_keeper_resting; /* atomic; the keeper sleeps until it is woken, or for long */
    int is_keeper_inside;   /* atomic; the keeper's thread is inside the driver */
    int is_ending;          /* atomic; the process exits: the keeper stays out of the driver */
    /* without a broker (limit.c) */
    uint64_t paid_ns[PLIMSOLL_MAX_GPUS]; /* atomic; the container's executed time when the broker was lost */
    uint64_t settled_ns[PLIMSOLL_MAX_GPUS]; /* atomic; until when the container owes nothing for that time */
};

struct plimsoll_captures {
    unsigned under_way; /* atomic; captures begun, or about to begin, and not ended */
    unsigned queries;   /* atomic; queries under way, or about to begin */
};

#endif
