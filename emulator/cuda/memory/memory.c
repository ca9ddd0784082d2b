#include "cuda/memory/memory.h"

#include <stdlib.h>

#include "cuda/context/context.h"
#include "cuda/memory/pool/pool.h"
#include "cuda/memory/share.h"

enum { SMALL_BYTES = 1 << 20, SMALL_ALIGNMENT = 512 };

/* A block for small allocations of one context. The block is freed with the last of them. */
struct block {
    struct block *next;
    CUcontext context;
    uint64_t base;
    size_t used, live;
    struct share *share; /* NULL = no memory of the block was offered to other processes */
};

static struct block *blocks; /* lock; the newest first */

/* Charges and backs memory in whole granules; 0 if the card or the address space is full. */
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
    for (struct block *block = blocks; block; block = block->next)
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
    block->next = blocks;
    blocks = block;
    return block;
}

static void leave_block(struct block *block, int gpu) {
    struct block **link = &blocks;
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
    if (!memory_reserve())
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
    memory_each_of(context, memory_release);
    pool_trim_all();
}
