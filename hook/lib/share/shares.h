/* The records of compute shares: the launches of this process, and its use of the gate. */
#ifndef PLIMSOLL_SHARES_H
#define PLIMSOLL_SHARES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_api.h"
#include "pages.h"

/* --- the work in a context -------------------------------------------------------------------------------
 */

/* The most events under way in one context. Many short segments need that many. Launches beyond them wait. */
#define PLIMSOLL_EVENTS 256

/* The most streams of a context that have work or are blocked. A launch into one more gets an event of its
 * own. */
#define PLIMSOLL_STREAMS 32

/* The stream of an event behind all streams of a context. */
#define PLIMSOLL_WHOLE_CONTEXT UINT64_MAX

/* An event of ours in the program's streams. */
struct plimsoll_event {
    CUevent handle;
    uint64_t serial;      /* tells this use of the handle from the next one */
    uint64_t stream;      /* plimsoll_stream_key, or PLIMSOLL_WHOLE_CONTEXT */
    uint64_t recorded_ns; /* just before the event was recorded: the event was not reached before */
    uint64_t entered_ns;  /* when the first launch that the event follows was made; at a beginning, the launch
                             that the event precedes */
    uint64_t due_ns;      /* when the work before the event should be done; 0 where that is not known */
    unsigned launches;    /* launches since the event before */
    unsigned stands_for;  /* the same; a sample stands for the launches before it too */
    bool is_begin;        /* a segment begins here */
    bool is_blocked;      /* and the segment is behind something that blocks the stream */
    bool is_first;  /* the event follows the first launch of a segment that has no event at its beginning */
    bool lets_pass; /* launches may pass a shut gate until this event is reached: launch.c */
};

/* Our events in one context. */
struct plimsoll_events {
    unsigned count, spare_count;
    struct plimsoll_event at[PLIMSOLL_EVENTS]; /* under way, in the order of their recording */
    CUevent spares[PLIMSOLL_EVENTS + 2];
};

struct plimsoll_stream {
    uint64_t key;
    unsigned tail;       /* launches that no event follows yet */
    uint64_t entered_ns; /* when the first launch of the tail was made */
    bool is_open;        /* the segment has begun, and is not known to have ended */
    bool is_fresh;       /* and no event follows any of its launches yet */
    bool has_begin;      /* an event stands at the segment's beginning */
    bool is_blocked;     /* the next segment will be behind something that blocks the stream */
};

struct plimsoll_streams {
    unsigned count;
    struct plimsoll_stream at[PLIMSOLL_STREAMS];
};

/* The reached event by which other events are dated. All times here are CLOCK_MONOTONIC. */
struct plimsoll_anchor {
    CUevent event;        /* NULL for none */
    uint64_t at_ns;       /* when it was reached */
    uint64_t narrowed_ns; /* when a poll last corrected at_ns */
};

/* How fast launches come and execute. */
struct plimsoll_pace {
    uint64_t reached_ns; /* the latest time at which an event was reached */
    uint64_t entered_ns; /* the time of the latest launch */
    uint64_t average_ns; /* execution time of one launch; 0 while unknown */
    unsigned learned;    /* events that the average was learned from */
};

/* The results of one poll of a context's events. Only the polling thread uses them. */
struct plimsoll_poll {
    bool is_running; /* lock; a thread polls the events now; only that thread may remove events */
    bool is_failed;
    unsigned count;
    CUevent anchor;
    uint64_t begun_ns, seen_ns;
    bool is_reached[PLIMSOLL_EVENTS];
    uint64_t reached_by_ns[PLIMSOLL_EVENTS];  /* valid for reached events, until one is removed */
    int64_t since_anchor_ns[PLIMSOLL_EVENTS]; /* valid for reached events */
};

/* The meter of one context. Every field needs plimsoll.shares.lock, with two exceptions: `next` never changes
 * once the meter is in the list, and the polling thread reads the events that it polls. Nobody holds the lock
 * during a call of the driver. A thread that makes such a call with this context's events is one of the
 * `users` during the call. */
struct plimsoll_meter {
    struct plimsoll_meter *next; /* meters are never freed, but serve the next context */
    uint64_t context;            /* 0: this meter is free */
    uint64_t life;               /* another number for each context that the meter serves */
    int gpu;                     /* index in `limits` */
    unsigned users;
    unsigned launching; /* launches between their two halves */
    bool is_broken;     /* the driver refused an event for good: launches pass unmetered */
    struct plimsoll_anchor anchor;
    struct plimsoll_pace pace;
    struct plimsoll_events events;
    struct plimsoll_streams streams;
    struct plimsoll_poll poll;
};

/* The work of this process on one GPU, as its page reports it (plimsoll/broker/pages.py, Work). */
struct plimsoll_burst {
    uint64_t launched_ns; /* 0: nothing is unfinished */
    uint64_t executed_ns; /* 0: execution is not known to have begun */
    bool is_presumed;     /* executed_ns is a guess, because no event was reached yet */
    uint64_t ended_ns;    /* the latest known end of any work in the burst */
    unsigned ending;      /* contexts that are being ended while they have work under way */
    uint64_t unfinished_ns, sure_ns, sliced_ns;
};

/* --- the gate --------------------------------------------------------------------------------------------
 */

/* Samples behind an open gate (launch.c). */
struct plimsoll_samples {
    uint32_t passes_left; /* atomic, raced for on purpose; launches until the next sample */
    uint32_t passes_each; /* atomic; launches between two samples */
};

/* Results of earlier waits at a shut gate (launch.c). Needs the lock. */
struct plimsoll_waits {
    unsigned in_vain;  /* launches that waited in vain since the container last executed nothing */
    bool is_following; /* a launch waited in vain while only other processes of the container executed */
    double slower;     /* the factor by which queues take longer than expected, at least 1 */
};

/* A broker that is lost, and the container's limit meanwhile (gate.c). All are atomic. */
struct plimsoll_lost {
    bool is_lost;
    uint64_t checked_ns;                    /* when the process last checked whether the broker is gone */
    uint64_t last_beat_ns;                  /* the beat after which the broker was gone */
    uint64_t paid_ns[PLIMSOLL_MAX_GPUS];    /* the container's executed time when the broker was lost */
    uint64_t settled_ns[PLIMSOLL_MAX_GPUS]; /* until when the container owes nothing for that time */
};

/* The thread that polls while no other does (poller.c). All are atomic. */
struct plimsoll_poller {
    int state;
    bool is_resting; /* the thread sleeps until it is woken, or for long */
    int is_inside;   /* the thread is inside the driver */
    int is_ending;   /* the process exits: the thread stays out of the driver */
};

struct plimsoll_shares {
    pthread_mutex_t lock;          /* for short sections: never held during a call of the driver or a sleep */
    struct plimsoll_meter *meters; /* lock; the list only grows */
    struct plimsoll_burst bursts[PLIMSOLL_MAX_GPUS]; /* lock */
    uint64_t serial;  /* lock; the last number given to an event or to a meter's life */
    bool is_metering; /* atomic, changed under lock; the gate was not open when last read: the page reports
                         bursts */
    struct plimsoll_waits waits;
    struct plimsoll_samples samples;
    struct plimsoll_lost lost;
    struct plimsoll_poller poller;
};

struct plimsoll_captures {
    unsigned under_way; /* atomic; captures begun, or about to begin, and not ended */
    unsigned queries;   /* atomic; queries under way, or about to begin */
};

#endif
