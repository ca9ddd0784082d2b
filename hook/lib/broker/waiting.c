/* A wait is one connection: the question goes out, and the thread sleeps in poll until the answer comes. The
 * thread holds no lock, so other threads allocate, free and wait freely. A restarting broker closes the
 * connection, and then the question goes to the next broker. */
#include "broker/broker.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "memory/ledger.h"
#include "say.h"
#include "state.h"

#define WITHOUT_BROKER_MS 60000 /* then the request is refused */
#define POLL_MS 100
/* If a faster process took the granted memory, the first repeat of the question goes out at once, and later
 * repeats after pauses that double up to this. A broker that grants in vain must not make the program spin.
 */
#define LONGEST_PAUSE_MS 1000

enum answer { ANSWER_GRANTED, ANSWER_REFUSED, ANSWER_NONE };

/* A signal handler of the program may fork while this thread sleeps. The child returns from poll as well, but
 * the answer is for its parent. */
static bool is_asker(pid_t asker) {
    return getpid() == asker;
}

static enum answer receive(int connection, pid_t asker, unsigned gpu, const char *function) {
    struct plimsoll_message answer;
    struct pollfd ready = {.fd = connection, .events = POLLIN};
    while (poll(&ready, 1, -1) < 0 && errno == EINTR && is_asker(asker))
        ;
    if (!is_asker(asker))
        return ANSWER_REFUSED;
    ssize_t length = recv(connection, &answer, sizeof(answer), MSG_DONTWAIT);
    if (length != sizeof(answer) || answer.magic != PLIMSOLL_MESSAGE_MAGIC)
        return ANSWER_NONE;
    if (answer.kind != PLIMSOLL_KIND_REFUSED)
        return answer.kind == PLIMSOLL_KIND_GRANTED ? ANSWER_GRANTED : ANSWER_NONE;
    plimsoll_fail("%s on %s was refused: %.*s", function, plimsoll.gpus[gpu].uuid, (int)sizeof(answer.text),
                  answer.text);
    return ANSWER_REFUSED;
}

static int ask(unsigned gpu, uint64_t bytes, const char *function) {
    struct plimsoll_message question = {
        .kind = PLIMSOLL_KIND_WAIT,
        .requested_bytes = bytes,
        .used_bytes = plimsoll_used(gpu),
        .line_bytes = __atomic_load_n(&plimsoll.gpus[gpu].line_bytes, __ATOMIC_RELAXED)};
    memcpy(question.gpu_uuid, plimsoll.gpus[gpu].uuid, sizeof(question.gpu_uuid));
    snprintf(question.text, sizeof(question.text), "%s", function);
    return plimsoll_ask(&question);
}

static bool wait_for_answer(unsigned gpu, uint64_t bytes, const char *function) {
    pid_t asker = getpid();
    for (int without_ms = 0; without_ms < WITHOUT_BROKER_MS;) {
        int connection = ask(gpu, bytes, function);
        enum answer answer = ANSWER_NONE;
        if (connection >= 0) {
            without_ms = 0;
            answer = receive(connection, asker, gpu, function);
            close(connection);
        }
        if (answer != ANSWER_NONE)
            return answer == ANSWER_GRANTED;
        plimsoll_sleep_ms(POLL_MS);
        without_ms += POLL_MS;
    }
    plimsoll_fail("%s waited for memory on %s, and no broker answered for %d s: refused", function,
                  plimsoll.gpus[gpu].uuid, WITHOUT_BROKER_MS / 1000);
    return false;
}

bool plimsoll_wait_for_memory(unsigned gpu, uint64_t bytes, unsigned turn, const char *function) {
    int saved = errno;
    if (turn > 1)
        plimsoll_sleep_ms(turn > 10 ? LONGEST_PAUSE_MS : 1 << (turn - 1));
    plimsoll_note("%s waits for %llu bytes on %s", function, (unsigned long long)bytes,
                  plimsoll.gpus[gpu].uuid);
    bool is_granted = wait_for_answer(gpu, bytes, function);
    errno = saved;
    return is_granted;
}

/* The page is read after the give-back. The broker raises `is_wanted` before it sums. So either the broker
 * sees what was given back, or this thread sees that memory is wanted. */
void plimsoll_tell_freed(unsigned gpu, uint64_t bytes) {
    if (__atomic_load_n(&plimsoll.limits->gpus[gpu].is_wanted, __ATOMIC_SEQ_CST) != 0)
        plimsoll_tell_given_back(gpu, bytes, plimsoll_used(gpu));
}
