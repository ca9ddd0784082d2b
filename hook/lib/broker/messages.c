/* Each message has a connection of its own. An open socket would be a file descriptor inside somebody else's
 * program: the program's `closefrom` could close it, its number could be reused, its children would inherit
 * it. Messages are rare (a start, a context, a refusal), and the broker reads what was queued even after this
 * side has closed. */
#include "broker/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "say.h"
#include "state.h"

#define DENIED_INTERVAL_NS 100000000u
#define UNKNOWN_LIMIT 8 /* reports of unknown functions per process */

/* sun_path holds 108 bytes, and a container's directory may be deeper. A path through /proc is short. */
static int open_connection(int type) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int directory = open(plimsoll.limits_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return -1;
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", directory,
             PLIMSOLL_SOCKET_NAME);
    int connection = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection >= 0 && connect(connection, (struct sockaddr *)&address, sizeof(address)) != 0) {
        int problem = errno;
        close(connection);
        connection = -1;
        errno = problem;
    }
    close(directory);
    return connection;
}

/* A connection of the wrong type never comes into being: the kernel answers EPROTOTYPE while any process has
 * the socket, even a stopped one or one whose queue is full, and the broker is not woken. ECONNREFUSED means
 * that no process has it. Every other answer is about this process alone, which may have no descriptor left,
 * no /proc or no right to connect. */
bool plimsoll_broker_is_gone(void) {
    int saved = errno;
    int connection = open_connection(SOCK_STREAM);
    bool is_gone = connection < 0 && errno == ECONNREFUSED;
    if (connection >= 0)
        close(connection);
    errno = saved;
    return is_gone;
}

static bool send_on(int connection, struct plimsoll_message *message) {
    message->magic = PLIMSOLL_MESSAGE_MAGIC;
    message->version = PLIMSOLL_VERSION;
    message->slot = plimsoll.slot;
    message->owner = plimsoll.owner;
    return send(connection, message, sizeof(*message), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*message);
}

int plimsoll_ask(struct plimsoll_message *message) {
    int connection = open_connection(SOCK_SEQPACKET);
    if (connection >= 0 && !send_on(connection, message)) {
        close(connection);
        connection = -1;
    }
    return connection;
}

static bool send_message(struct plimsoll_message *message) {
    int saved = errno;
    int connection = plimsoll_ask(message);
    if (connection >= 0)
        close(connection);
    errno = saved;
    return connection >= 0;
}

/* The broker may be restarting when a process starts. Then the hello goes out before the next message. */
void plimsoll_tell_hello(void) {
    if (__atomic_exchange_n(&plimsoll.is_announced, true, __ATOMIC_ACQ_REL))
        return;
    struct plimsoll_message message = {.kind = PLIMSOLL_KIND_HELLO};
    if (!send_message(&message))
        __atomic_store_n(&plimsoll.is_announced, false, __ATOMIC_RELEASE);
}

static bool report(struct plimsoll_message *message) {
    if (!plimsoll_is_attached())
        return false;
    plimsoll_tell_hello();
    bool is_sent = send_message(message);
    if (!is_sent)
        plimsoll_note("the broker does not answer; going on with the last limits");
    return is_sent;
}

bool plimsoll_tell_context(unsigned gpu) {
    struct plimsoll_message message = {.kind = PLIMSOLL_KIND_CONTEXT};
    memcpy(message.gpu_uuid, plimsoll.gpus[gpu].uuid, sizeof(message.gpu_uuid));
    return report(&message);
}

void plimsoll_tell_given_back(unsigned gpu, uint64_t bytes, uint64_t used_bytes) {
    struct plimsoll_message message = {
        .kind = PLIMSOLL_KIND_FREED, .requested_bytes = bytes, .used_bytes = used_bytes};
    memcpy(message.gpu_uuid, plimsoll.gpus[gpu].uuid, sizeof(message.gpu_uuid));
    report(&message);
}

void plimsoll_tell_denied(unsigned gpu, uint64_t requested_bytes, uint64_t used_bytes, uint64_t line_bytes,
                          const char *function) {
    uint64_t now = plimsoll_now_ns();
    uint64_t last = __atomic_load_n(&plimsoll.denied_at_ns[gpu], __ATOMIC_RELAXED);
    if ((last != 0 && now - last < DENIED_INTERVAL_NS) ||
        !__atomic_compare_exchange_n(&plimsoll.denied_at_ns[gpu], &last, now, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return;
    struct plimsoll_message message = {.kind = PLIMSOLL_KIND_DENIED,
                                       .requested_bytes = requested_bytes,
                                       .used_bytes = used_bytes,
                                       .line_bytes = line_bytes};
    memcpy(message.gpu_uuid, plimsoll.gpus[gpu].uuid, sizeof(message.gpu_uuid));
    snprintf(message.text, sizeof(message.text), "%s", function);
    report(&message);
}

static void send_unknown(const char *function) {
    struct plimsoll_message message = {.kind = PLIMSOLL_KIND_UNKNOWN};
    snprintf(message.text, sizeof(message.text), "%s", function);
    report(&message);
}

/* CUDA's runtime looks everything up before cuInit, when this process has no slot to report for yet. The
 * first unknown name is kept until the process has a slot. */
static void keep_for_later(const char *function) {
    int none = UNKNOWN_NONE;
    if (!__atomic_compare_exchange_n(&plimsoll.unknown_state, &none, UNKNOWN_WRITING, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return;
    snprintf(plimsoll.unknown, sizeof(plimsoll.unknown), "%s", function);
    __atomic_store_n(&plimsoll.unknown_state, UNKNOWN_WAITING, __ATOMIC_RELEASE);
}

void plimsoll_tell_kept(void) {
    int waiting = UNKNOWN_WAITING;
    if (__atomic_compare_exchange_n(&plimsoll.unknown_state, &waiting, UNKNOWN_WRITING, false,
                                    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        send_unknown(plimsoll.unknown);
}

void plimsoll_tell_unknown(const char *function) {
    if (!plimsoll_is_attached())
        keep_for_later(function);
    else if (__atomic_fetch_add(&plimsoll.unknown_count, 1, __ATOMIC_RELAXED) < UNKNOWN_LIMIT)
        send_unknown(function);
}
