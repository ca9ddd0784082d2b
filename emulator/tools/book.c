/* Shows the book of an emulated node as JSON, and injects events that a real GPU would raise by itself:
 *   book                       the whole book
 *   book xid GPU NUMBER        an XID error, for example `book xid 0 79`
 *   book lose GPU | find GPU   the GPU falls off the bus, or comes back
 *   book end GPU | make GPU    a MIG instance is ended, or made again
 *   book fault GPU NAME VALUE  a fault of the hardware, for example `book fault 0 ecc 1`
 *   book reset GPU             the GPU is reset: its faults end, and it is back on the bus
 *   book fail GPU CALL ERROR   NVML functions whose names begin with CALL return this nvmlReturn_t
 *   book slow GPU CALL MS      the same functions take MS milliseconds more
 *   book heal GPU              the GPU's fault ends
 *   book watch GPU MS          one GPU, a line every MS milliseconds, until its reader closes the pipe
 * MIG instances are numbered behind the cards. A fault of an instance's hardware is a fault of its card:
 * `lose`, `find`, `fault` and `reset` name the card. An XID may be one instance's.
 * The node file is named by PLIMSOLL_EMULATOR. Exit code 2 on bad input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "book/book.h"
#include "book/call_faults.h"
#include "book/timeline.h"
#include "book/view.h"

enum { XID_EVENT = 8 }; /* nvmlEventTypeXidCriticalError */

static const char *const purposes[BOOK_PURPOSES] = {
    [BOOK_CONTEXTS] = "context_bytes",        [BOOK_POOLED] = "pooled_bytes",
    [BOOK_POOLED_FREE] = "pooled_free_bytes", [BOOK_GRAPHS] = "graph_bytes",
    [BOOK_MODULES] = "module_bytes",
};

static const char *const faults[BOOK_FAULTS] = {
    [BOOK_ECC] = "ecc",           [BOOK_RETIRED] = "retired",
    [BOOK_REMAP] = "remap",       [BOOK_REMAP_FAILED] = "remap-failed",
    [BOOK_RECOVERY] = "recovery", [BOOK_CLOCKS] = "clocks",
};

static bool find_fault(const char *name, enum book_fault *fault) {
    for (int i = 0; i < BOOK_FAULTS; i++)
        if (strcmp(name, faults[i]) == 0) {
            *fault = (enum book_fault)i;
            return true;
        }
    return false;
}

static void print_process(const struct book_process *process) {
    printf("{\"pid\": %u, \"slot\": %u, \"name\": \"", process->pid, process->slot);
    for (const char *c = process->name; *c; c++)
        printf(*c == '"' || *c == '\\' || (unsigned char)*c < ' ' ? "\\u%04x" : "%c", (unsigned char)*c);
    printf("\", \"contexts\": %u, \"used_bytes\": %llu, \"peak_bytes\": %llu, ", process->contexts,
           (unsigned long long)process->used_bytes, (unsigned long long)process->peak_bytes);
    for (int purpose = 0; purpose < BOOK_PURPOSES; purpose++)
        printf("\"%s\": %llu, ", purposes[purpose], (unsigned long long)process->purpose_bytes[purpose]);
    printf("\"busy_ns\": %llu, \"spun_ns\": %llu, \"unfinished_ns\": %llu, \"launches\": %llu}",
           (unsigned long long)process->busy_ns, (unsigned long long)process->spun_ns,
           (unsigned long long)process->unfinished_ns, (unsigned long long)process->launches);
}

static void print_gpu(struct book *book, int gpu) {
    static struct book_snapshot snapshot;
    const struct node_gpu *card = &book->node.gpus[gpu];
    book_look(book, gpu, &snapshot);
    printf(
        "{\"index\": %d, \"card\": %d, \"uuid\": \"%s\", \"memory_bytes\": %llu, \"reserved_bytes\": %llu, ",
        gpu, card->card, card->uuid, (unsigned long long)card->memory_bytes,
        (unsigned long long)card->reserved_bytes);
    printf("\"time_ns\": %llu, \"used_bytes\": %llu, \"peak_bytes\": %llu, ",
           (unsigned long long)snapshot.time_ns, (unsigned long long)snapshot.used_bytes,
           (unsigned long long)snapshot.peak_bytes);
    printf("\"busy_ns\": %llu, \"spun_ns\": %llu, \"lost\": %s, \"processes\": [",
           (unsigned long long)snapshot.busy_ns, (unsigned long long)snapshot.spun_ns,
           snapshot.lost ? "true" : "false");
    for (uint32_t i = 0; i < snapshot.process_count; i++) {
        fputs(i ? ", " : "", stdout);
        print_process(&snapshot.processes[i]);
    }
    printf("]}");
}

static void print_book(struct book *book) {
    printf("{\"gpus\": [");
    for (int gpu = 0; gpu < book->node.place_count; gpu++) {
        fputs(gpu ? ", " : "", stdout);
        print_gpu(book, gpu);
    }
    printf("]}\n");
}

/* Prints at the multiples of `ms` on the book's clock, so that a program that uses the same clock finds a
 * line where its work begins. Each line has the time of its measurement. */
static void watch(struct book *book, int gpu, unsigned long ms) {
    uint64_t step_ns = ms * 1000000, due_ns = book_now_ns() / step_ns * step_ns;
    do {
        for (due_ns += step_ns; book_now_ns() < due_ns;)
            timeline_sleep_until(due_ns);
        print_gpu(book, gpu);
        putchar('\n');
    } while (fflush(stdout) == 0);
}

static bool number(const char *text, unsigned long most, unsigned long *value) {
    char *end;
    *value = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && *value <= most;
}

static int run(struct book *book, int argc, char **argv) {
    unsigned long gpu, xid, ms, error;
    enum book_fault fault;
    unsigned long last_gpu = (unsigned long)book->node.place_count - 1;
    unsigned long last_card = (unsigned long)book->node.gpu_count - 1;
    if (argc == 1)
        print_book(book);
    else if (argc == 4 && strcmp(argv[1], "xid") == 0 && number(argv[2], last_gpu, &gpu) &&
             number(argv[3], 100000, &xid))
        book_post_event(book, (int)gpu, XID_EVENT, xid);
    else if (argc == 3 && strcmp(argv[1], "lose") == 0 && number(argv[2], last_card, &gpu))
        book_set_lost(book, (int)gpu, true);
    else if (argc == 3 && strcmp(argv[1], "find") == 0 && number(argv[2], last_card, &gpu))
        book_set_lost(book, (int)gpu, false);
    else if (argc == 3 && strcmp(argv[1], "end") == 0 && number(argv[2], last_gpu, &gpu) && gpu > last_card)
        book_set_ended(book, (int)gpu, true);
    else if (argc == 3 && strcmp(argv[1], "make") == 0 && number(argv[2], last_gpu, &gpu) && gpu > last_card)
        book_set_ended(book, (int)gpu, false);
    else if (argc == 3 && strcmp(argv[1], "reset") == 0 && number(argv[2], last_card, &gpu))
        book_reset(book, (int)gpu);
    else if (argc == 5 && strcmp(argv[1], "fault") == 0 && number(argv[2], last_card, &gpu) &&
             find_fault(argv[3], &fault) && number(argv[4], 1000000, &xid))
        book_set_fault(book, (int)gpu, fault, xid);
    else if (argc == 5 && strcmp(argv[1], "fail") == 0 && number(argv[2], last_gpu, &gpu) &&
             number(argv[4], 999, &error) && error)
        return book_set_call_fault(book, (int)gpu, argv[3], (uint32_t)error, 0) ? 0 : 2;
    else if (argc == 5 && strcmp(argv[1], "slow") == 0 && number(argv[2], last_gpu, &gpu) &&
             number(argv[4], 3600000, &ms))
        return book_set_call_fault(book, (int)gpu, argv[3], 0, (uint32_t)ms) ? 0 : 2;
    else if (argc == 3 && strcmp(argv[1], "heal") == 0 && number(argv[2], last_gpu, &gpu))
        book_set_call_fault(book, (int)gpu, "", 0, 0);
    else if (argc == 4 && strcmp(argv[1], "watch") == 0 && number(argv[2], last_gpu, &gpu) &&
             number(argv[3], 3600000, &ms) && ms)
        watch(book, (int)gpu, ms);
    else {
        fprintf(stderr,
                "usage: book [xid GPU NUMBER | lose GPU | find GPU | end GPU | make GPU | fault GPU NAME "
                "VALUE | reset GPU |\n"
                "             fail GPU CALL ERROR | slow GPU CALL MS | heal GPU | watch GPU MS], GPU from 0 "
                "to %lu\n",
                last_gpu);
        return 2;
    }
    return 0;
}

int main(int argc, char **argv) {
    static struct book book;
    char message[NODE_MESSAGE_BYTES];
    if (!book_open(&book, message)) {
        fprintf(stderr, "plimsoll emulator: %s\n", message);
        return 2;
    }
    return run(&book, argc, argv);
}
