#include "cuda/memory/memory.h"

#include <string.h>
#include <sys/mman.h>

#include "cuda/context/context.h"
#include "cuda/memory/pool.h"
#include "cuda/memory/share.h"

enum { SMALL_BYTES = 1 << 20, SMALL_ALIGNMENT = 512 };

/* Where small allocations of one context live; freed with the last of them. */
struct block {
    struct block *next;
    CUcontext context;
    uint64_t base;
    size_t used, live;
    struct share *share; /* NULL = nothing in it was offered to other processes */
};

static struct {
    struct allocation *rows; /* lock; by base */
    size_t count, room;
    struct block *blocks; /* lock; the newest first */
    unsigned long long last_id;
} table;

/* The first row whose base is above the address. */
static size_t above(uint64_t address) {
    size_t low = 0, high = table.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table.rows[middle].base > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct allocation *memory_find(uint64_t address) {
    size_t index = above(address);
    if (!index)
        return NULL;
    struct allocation *row = &table.rows[index - 1];
    return address - row->base < row->size ? row : NULL;
}

struct allocation *memory_search(bool (*wanted)(const struct allocation *allocation, const void *closure),
                                 const void *closure) {
    for (size_t i = 0; i < table.count; i++)
        if (wanted(&table.rows[i], closure))
            return &table.rows[i];
    return NULL;
}

bool memory_holds(uint64_t address, size_t bytes) {
    const struct allocation *row = memory_find(address);
    return row && bytes <= row->size - (address - row->base);
}

static bool make_room(void) {
    if (table.count < table.room)
        return true;
    size_t room = table.room ? table.room * 2 : 64;
    struct allocation *rows = realloc(table.rows, room * sizeof *rows);
    if (!rows)
        return false;
    table.rows = rows;
    table.room = room;
    return true;
}

bool memory_add(const struct allocation *allocation) {
    if (!make_room())
        return false;
    size_t index = above(allocation->base);
    memmove(&table.rows[index + 1], &table.rows[index], (table.count - index) * sizeof *table.rows);
    table.rows[index] = *allocation;
    table.rows[index].id = ++table.last_id;
    table.count++;
    return true;
}

void memory_remove(uint64_t base) {
    size_t index = above(base) - 1;
    table.count--;
    memmove(&table.rows[index], &table.rows[index + 1], (table.count - index) * sizeof *table.rows);
}

uint64_t memory_back(size_t bytes) {
    void *base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? 0 : (uint64_t)(uintptr_t)base;
}

void memory_unback(uint64_t base, size_t bytes) {
    munmap((void *)(uintptr_t)base, bytes);
}

/* Charged and backed, in whole granules; 0 = the card or the address space is full. */
static uint64_t take_granules(CUcontext context, size_t bytes) {
    if (!book_charge(&driver.book, context->gpu, bytes))
        return 0;
    uint64_t base = memory_back(bytes);
    if (!base)
        book_refund(&driver.book, context->gpu, bytes);
    return base;
}

static void give_granules(int gpu, uint64_t base, size_t bytes, struct share *share) {
    memory_unback(base, bytes);
    if (share)
        share_drop(share);
    else
        book_refund(&driver.book, gpu, bytes);
}

static struct block *block_with_room(CUcontext context, size_t bytes) {
    for (struct block *block = table.blocks; block; block = block->next)
        if (block->context == context && bytes <= MEMORY_GRANULE - block->used)
            return block;
    struct block *block = calloc(1, sizeof *block);
    if (!block)
        return NULL;
    block->base = take_granules(context, MEMORY_GRANULE);
    if (!block->base) {
        free(block);
        return NULL;
    }
    block->context = context;
    block->next = table.blocks;
    table.blocks = block;
    return block;
}

static void leave_block(struct block *block, int gpu) {
    struct block **link = &table.blocks;
    if (--block->live)
        return;
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    give_granules(gpu, block->base, MEMORY_GRANULE, block->share);
    free(block);
}

static bool take_small(struct allocation *allocation) {
    size_t bytes = memory_round_up(allocation->size, SMALL_ALIGNMENT);
    struct block *block = block_with_room(allocation->context, bytes);
    if (!block)
        return false;
    allocation->base = block->base + block->used;
    allocation->block = block;
    block->used += bytes;
    block->live++;
    return true;
}

static bool take_large(struct allocation *allocation) {
    allocation->charged_bytes = memory_round_up(allocation->size, MEMORY_GRANULE);
    if (allocation->charged_bytes < allocation->size)
        return false;
    allocation->base = take_granules(allocation->context, allocation->charged_bytes);
    return allocation->base != 0;
}

CUresult memory_allocate(CUcontext context, enum memory_kind kind, size_t bytes, uint64_t *base) {
    context = context->owner;
    struct allocation allocation = {
        .size = bytes, .kind = kind, .context = context, .gpu = context->gpu, .device = context->device};
    if (!make_room())
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes <= SMALL_BYTES ? !take_small(&allocation) : !take_large(&allocation))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory_add(&allocation);
    *base = allocation.base;
    return CUDA_SUCCESS;
}

CUresult memory_offer(struct allocation *allocation, struct share **share, uint64_t *offset) {
    struct block *block = allocation->block;
    struct share **kept = block ? &block->share : &allocation->share;
    uint64_t base = block ? block->base : allocation->base;
    size_t bytes = block ? MEMORY_GRANULE : allocation->charged_bytes;
    if (!*kept)
        *kept = share_move(allocation->gpu, base, bytes, bytes);
    *share = *kept;
    *offset = allocation->base - base;
    return *kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void memory_release(struct allocation *allocation) {
    struct allocation gone = *allocation;
    memory_remove(gone.base);
    if (gone.block)
        leave_block(gone.block, gone.gpu);
    else if (gone.charged_bytes)
        give_granules(gone.gpu, gone.base, gone.charged_bytes, gone.share);
    else if (gone.kind == MEMORY_IMPORTED) {
        memory_unback(gone.base - gone.share_offset, gone.share->bytes);
        share_drop(gone.share);
    } else if (gone.kind != MEMORY_REGISTERED)
        memory_unback(gone.base, gone.size);
    if (gone.kind == MEMORY_POOLED && gone.share)
        share_drop(gone.share);
    if (gone.kind == MEMORY_POOLED)
        pool_returned(gone.pool, gone.size);
}

void memory_free_all(CUcontext context) {
    for (size_t i = table.count; i-- > 0;)
        if (table.rows[i].context == context)
            memory_release(&table.rows[i]);
    pool_trim_all();
}
