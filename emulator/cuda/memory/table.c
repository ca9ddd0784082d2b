#include "cuda/memory/table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct {
    struct allocation *rows; /* lock; by base */
    size_t count, room;
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

bool memory_reserve(void) {
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
    if (!memory_reserve())
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

void memory_each_of(CUcontext context, void (*act)(struct allocation *allocation)) {
    for (size_t i = table.count; i-- > 0;)
        if (table.rows[i].context == context)
            act(&table.rows[i]);
}
