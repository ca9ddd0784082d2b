#include "book/traffic.h"

static struct book_traffic *stretch(struct book_share *share, uint64_t number) {
    return &share->traffic[number % BOOK_MAX_TRAFFIC];
}

void traffic_issue(struct book_share *share, uint64_t begin_ns, uint64_t length_ns) {
    uint64_t waiting = share->traffic_begun - share->traffic_ended;
    if (waiting) {
        struct book_traffic *last = stretch(share, share->traffic_begun - 1);
        if (last->end_ns == begin_ns || waiting == BOOK_MAX_TRAFFIC) {
            last->end_ns += length_ns;
            return;
        }
    }
    *stretch(share, share->traffic_begun++) = (struct book_traffic){begin_ns, begin_ns + length_ns};
}

uint64_t traffic_run(struct book_share *share, uint64_t from_ns, uint64_t to_ns) {
    uint64_t traffic_ns = 0;
    while (share->traffic_ended != share->traffic_begun) {
        const struct book_traffic *first = stretch(share, share->traffic_ended);
        uint64_t begin_ns = first->begin_ns > from_ns ? first->begin_ns : from_ns;
        uint64_t end_ns = first->end_ns < to_ns ? first->end_ns : to_ns;
        if (begin_ns < end_ns)
            traffic_ns += end_ns - begin_ns;
        if (first->end_ns > to_ns)
            break;
        share->traffic_ended++;
    }
    return traffic_ns;
}

void traffic_drop(struct book_share *share) {
    share->traffic_ended = share->traffic_begun;
}
