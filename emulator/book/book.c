/* Slots and memory of the shared book. Every total is a sum over the slots of living processes. */
#include "book/book.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "book/cgroup.h"
#include "book/holders.h"
#include "book/limits.h"
#include "book/lock.h"
#include "book/mps.h"
#include "book/node/file.h"
#include "book/state_file.h"
#include "book/timeline.h"

bool book_open(struct book *book, char message[NODE_MESSAGE_BYTES]) {
    book->slot = -1;
    book_clock_find();
    return node_file_read(node_file_path(), &book->node, message) && book_file_map(book, message);
}

static void clear_slot(struct book *book, int slot) {
    /* Clear claimed_ns first: if the owner lives after all, it then submits no more work. */
    __atomic_store_n(&book->state->slots[slot].claimed_ns, 0, __ATOMIC_RELAXED);
    for (int gpu = 0; gpu < book->node.place_count; gpu++)
        timeline_drop(book, gpu, slot);
    book_forget_holder_locked(book, slot);
    book->state->slots[slot].pid = 0;
}

void book_sweep_locked(struct book *book) {
    for (int slot = 0; slot < (int)book->state->slots_touched; slot++)
        if (book->state->slots[slot].pid &&
            (!book_slot_alive(book, slot) || !book_has_its_server(book, slot)))
            clear_slot(book, slot);
}

static uint64_t own_start_ticks(void) {
    char text[1024];
    unsigned long long ticks = 0;
    FILE *file = fopen("/proc/self/stat", "re");
    if (!file)
        return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    /* The command, field 2, may hold blanks and brackets: count fields from its last closing bracket. */
    const char *rest = strrchr(text, ')');
    if (rest)
        sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &ticks);
    return ticks - (uint64_t)(book_boot_shift_ns / (1000000000 / sysconf(_SC_CLK_TCK)));
}

static void own_name(char name[BOOK_NAME_BYTES]) {
    memset(name, 0, BOOK_NAME_BYTES);
    FILE *file = fopen("/proc/self/comm", "re");
    if (!file)
        return;
    if (fgets(name, BOOK_NAME_BYTES, file))
        name[strcspn(name, "\n")] = '\0';
    fclose(file);
}

static void claim(struct book *book, int index) {
    struct book_slot *slot = &book->state->slots[index];
    struct stat space = {0};
    memset(slot->gpus, 0, sizeof slot->gpus[0] * (size_t)book->node.place_count);
    own_name(slot->name);
    cgroup_own(slot->cgroups);
    book_find_mps_locked(book, index);
    book_clock_find();
    slot->start_ticks = own_start_ticks();
    slot->pid_namespace = stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
    book->claimed_ns = book_now_ns();
    __atomic_store_n(&slot->claimed_ns, book->claimed_ns, __ATOMIC_RELAXED);
    /* This order makes a claim that death cuts short either swept or void. */
    if (book->state->slots_touched <= (uint32_t)index)
        book->state->slots_touched = (uint32_t)index + 1;
    slot->pid = (uint32_t)getpid();
    book->slot = index;
}

bool book_join(struct book *book, char message[NODE_MESSAGE_BYTES]) {
    book_lock(book);
    book_sweep_locked(book);
    for (int slot = 0; slot < BOOK_MAX_SLOTS && book->slot < 0; slot++)
        if (!book->state->slots[slot].pid && book_file_hold_slot(book->fd, slot))
            claim(book, slot);
    book_unlock(book);
    if (book->slot < 0)
        snprintf(message, NODE_MESSAGE_BYTES,
                 "%.1000s.state: processes = '%d': all slots are taken; end some", book->node.path,
                 BOOK_MAX_SLOTS);
    return book->slot >= 0;
}

static uint64_t used_at(const struct book *book, int gpu) {
    uint64_t used_bytes = book_inherited_locked(book, gpu, -1);
    for (uint32_t slot = 0; slot < book->state->slots_touched; slot++)
        if (book->state->slots[slot].pid)
            used_bytes += book->state->slots[slot].gpus[gpu].used_bytes;
    return used_bytes;
}

uint64_t book_used_locked(const struct book *book, int gpu) {
    uint64_t used_bytes = used_at(book, gpu);
    for (int part = book->node.gpu_count; gpu < book->node.gpu_count && part < book->node.place_count; part++)
        if (book->node.gpus[part].card == gpu)
            used_bytes += used_at(book, part);
    return used_bytes;
}

static uint64_t free_locked(const struct book *book, int gpu) {
    const struct node_gpu *card = &book->node.gpus[gpu];
    return card->memory_bytes - card->reserved_bytes - book_used_locked(book, gpu);
}

static struct book_share *own_share(struct book *book, int gpu) {
    return &book->state->slots[book->slot].gpus[gpu];
}

/* A dead process holds no memory, whether its slot is swept or not. A sum is a new peak only if it passes
 * the old peak without dead processes. */
static void note_peak_locked(struct book *book, int gpu) {
    uint64_t *peak_bytes = &book->state->gpus[gpu].peak_bytes;
    if (book_used_locked(book, gpu) <= *peak_bytes)
        return;
    book_sweep_locked(book);
    uint64_t used_bytes = book_used_locked(book, gpu);
    if (used_bytes > *peak_bytes)
        *peak_bytes = used_bytes;
}

static bool has_room(struct book *book, int gpu, uint64_t bytes) {
    uint64_t hard_bytes;
    return bytes <= free_locked(book, gpu) && bytes <= book_allowed_locked(book, gpu, &hard_bytes);
}

bool book_charge_locked(struct book *book, int gpu, uint64_t bytes) {
    if (!has_room(book, gpu, bytes))
        book_sweep_locked(book);
    bool fits = has_room(book, gpu, bytes);
    if (fits) {
        struct book_share *share = own_share(book, gpu);
        share->used_bytes += bytes;
        if (share->peak_bytes < share->used_bytes)
            share->peak_bytes = share->used_bytes;
        note_peak_locked(book, gpu);
        if (book->node.gpus[gpu].card != gpu)
            note_peak_locked(book, book->node.gpus[gpu].card);
    }
    return fits;
}

bool book_charge(struct book *book, int gpu, uint64_t bytes) {
    book_lock(book);
    bool fits = book_charge_locked(book, gpu, bytes);
    book_unlock(book);
    return fits;
}

void book_refund_locked(struct book *book, int gpu, uint64_t bytes) {
    own_share(book, gpu)->used_bytes -= bytes;
}

void book_refund(struct book *book, int gpu, uint64_t bytes) {
    book_lock(book);
    book_refund_locked(book, gpu, bytes);
    book_unlock(book);
}

void book_note(struct book *book, int gpu, enum book_purpose purpose, int64_t change_bytes) {
    __atomic_add_fetch(&own_share(book, gpu)->purpose_bytes[purpose], (uint64_t)change_bytes,
                       __ATOMIC_RELAXED);
}

void book_count_context(struct book *book, int gpu, int change) {
    book_lock(book);
    own_share(book, gpu)->contexts += (uint32_t)change;
    book_unlock(book);
}

uint64_t book_free_bytes(struct book *book, int gpu) {
    book_lock(book);
    book_sweep_locked(book);
    uint64_t free_bytes = free_locked(book, gpu);
    book_unlock(book);
    return free_bytes;
}
