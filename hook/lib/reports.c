/* One connection for all reports of a process, unlike other messages (messages.c): they come at every handing
 * over, and the broker answers by the gate's word alone.
 *
 * It lives in the program's own table of descriptors, which the program may close, and reuse the numbers of.
 * So before each use its identity is asked for; a connection that is no longer ours is left alone.
 */
#include "reports.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gate.h"
#include "messages.h"
#include "state.h"

#define SHARES (&plimsoll.shares)

/* Out of the way of programs that count their descriptors from 3. */
#define LEAST_DESCRIPTOR 100

static bool is_ours(void) {
    struct stat status;
    return SHARES->connection >= 0 && fstat(SHARES->connection, &status) == 0 && S_ISSOCK(status.st_mode) &&
           status.st_dev == SHARES->connection_id[0] && status.st_ino == SHARES->connection_id[1];
}

static bool has_hung_up(void) {
    struct pollfd line = {.fd = SHARES->connection, .events = POLLRDHUP};
    return poll(&line, 1, 0) != 0 && line.revents != 0;
}

static void forget(void) {
    if (is_ours())
        close(SHARES->connection);
    SHARES->connection = -1;
}

static void connect_anew(void) {
    struct stat status;
    int connection = plimsoll_connect();
    int moved = connection < 0 ? -1 : fcntl(connection, F_DUPFD_CLOEXEC, LEAST_DESCRIPTOR);
    if (moved >= 0) {
        close(connection);
        connection = moved;
    }
    if (connection < 0 || fstat(connection, &status) != 0)
        return;
    SHARES->connection = connection;
    SHARES->connection_id[0] = status.st_dev;
    SHARES->connection_id[1] = status.st_ino;
}

/* Read at the moment of sending, so that the latest report is the true one. What nobody looked for yet under
 * a shut gate counts as unfinished. */
static struct plimsoll_message message_of(uint32_t word) {
    struct plimsoll_message message = {.kind = PLIMSOLL_KIND_SHARE, .gate_word = word};
    bool is_shut = (word & PLIMSOLL_GATE_STATES) == PLIMSOLL_GATE_SHUT;
    pthread_mutex_lock(&SHARES->lock);
    message.busy_ns = SHARES->busy_ns;
    message.busy_since_ns = SHARES->busy_since_ns;
    message.idle_since_ns = SHARES->idle_since_ns;
    pthread_mutex_unlock(&SHARES->lock);
    bool is_unfinished = is_shut ? __atomic_load_n(&SHARES->drained_word, __ATOMIC_ACQUIRE) != word
                                 : message.busy_since_ns != 0;
    message.share_state |= is_unfinished ? PLIMSOLL_SHARE_UNFINISHED : 0;
    message.share_state |= __atomic_load_n(&SHARES->waiting, __ATOMIC_SEQ_CST) > 0 ? PLIMSOLL_SHARE_WANTS : 0;
    return message;
}

/* Under report_lock. */
static bool send_now(uint32_t word) {
    struct plimsoll_message message = message_of(word);
    if (!is_ours() || has_hung_up()) {
        forget();
        connect_anew();
    }
    bool is_sent = SHARES->connection >= 0 && plimsoll_send_on(SHARES->connection, &message);
    __atomic_store_n(&SHARES->is_report_owed, !is_sent, __ATOMIC_RELEASE);
    return is_sent;
}

bool plimsoll_report(uint32_t word) {
    int saved = errno;
    plimsoll_tell_hello();
    pthread_mutex_lock(&SHARES->report_lock);
    bool is_sent = send_now(word);
    pthread_mutex_unlock(&SHARES->report_lock);
    errno = saved;
    return is_sent;
}

bool plimsoll_report_is_owed(void) {
    return __atomic_load_n(&SHARES->is_report_owed, __ATOMIC_ACQUIRE);
}

bool plimsoll_report_is_missing(void) {
    pthread_mutex_lock(&SHARES->report_lock);
    bool is_missing = SHARES->connection < 0;
    pthread_mutex_unlock(&SHARES->report_lock);
    return is_missing;
}

bool plimsoll_report_stands(void) {
    int saved = errno;
    pthread_mutex_lock(&SHARES->report_lock);
    bool is_standing =
        !plimsoll_report_is_owed() && (SHARES->connection < 0 || (is_ours() && !has_hung_up()));
    if (!is_standing)
        is_standing = send_now(plimsoll_gate_word());
    pthread_mutex_unlock(&SHARES->report_lock);
    errno = saved;
    return is_standing;
}

void plimsoll_report_forget(void) {
    forget();
}
