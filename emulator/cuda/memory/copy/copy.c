#include "cuda/memory/copy/copy.h"

#include <string.h>
#include <sys/mman.h>

#include "cuda/memory/array/array.h"
#include "cuda/memory/memory.h"

enum {
    LEAST_NS = 1500,        /* time to start a copy */
    ON_DEVICE_SPEEDUP = 40, /* speed of copies within device memory, relative to the bus */
    PAGE_BYTES = 1 << 16,   /* the largest page size of any supported kernel */
    LAZY_BYTES = 1 << 20,
};

enum { TARGET, SOURCE, WIDTH, HEIGHT, DEPTH, TARGET_PITCH, SOURCE_PITCH, TARGET_SLICE, SOURCE_SLICE };

static bool on_device(uint64_t address) {
    const struct allocation *allocation = memory_find(address);
    return allocation && allocation->kind != MEMORY_HOST && allocation->kind != MEMORY_REGISTERED;
}

static uint64_t length_ns(uint64_t bytes, bool crosses_bus) {
    uint64_t rate = driver.book.node.copy_bytes_per_s * (crosses_bus ? 1 : ON_DEVICE_SPEEDUP);
    return LEAST_NS + (uint64_t)((double)bytes * 1e9 / (double)rate);
}

static void move_box(const struct work_data *data) {
    const uint64_t *v = data->values;
    for (uint64_t z = 0; z < v[DEPTH]; z++)
        for (uint64_t y = 0; y < v[HEIGHT]; y++)
            memmove((void *)(uintptr_t)(v[TARGET] + z * v[TARGET_SLICE] + y * v[TARGET_PITCH]),
                    (const void *)(uintptr_t)(v[SOURCE] + z * v[SOURCE_SLICE] + y * v[SOURCE_PITCH]),
                    v[WIDTH]);
}

struct work copy_line(uint64_t target, uint64_t source, size_t bytes) {
    bool crosses_bus = !on_device(target) || !on_device(source);
    return (struct work){.kind = WORK_DEVICE,
                         .length_ns = length_ns(bytes, crosses_bus),
                         .effect = move_box,
                         .type = CU_GRAPH_NODE_TYPE_MEMCPY,
                         .data = {{target, source, bytes, 1, 1, 0, 0, 0, 0}}};
}

/* The source or the target of a copy: the address of its first byte, and its rows and slices. */
struct side {
    uint64_t address, pitch, slice;
    bool on_device;
};

struct side_form {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t x, y, z, pitch, height;
};

static bool array_side(const struct side_form *form, struct side *side) {
    if (!object_is(form->array, OBJECT_ARRAY))
        return false;
    side->pitch = form->array->row_bytes;
    side->slice = form->array->row_bytes * form->array->rows;
    side->address = form->array->base;
    side->on_device = true;
    return true;
}

static bool linear_side(const struct side_form *form, size_t width, size_t height, struct side *side) {
    bool host = form->type == CU_MEMORYTYPE_HOST;
    side->address = host ? (uint64_t)(uintptr_t)form->host : form->device;
    side->pitch = form->pitch ? form->pitch : form->x + width;
    side->slice = side->pitch * (form->height ? form->height : form->y + height);
    side->on_device = !host && on_device(side->address);
    bool known = host || form->type == CU_MEMORYTYPE_UNIFIED || memory_find(side->address);
    return side->address && known && side->pitch >= width;
}

static bool resolve(const struct side_form *form, size_t width, size_t height, struct side *side) {
    bool good = form->type == CU_MEMORYTYPE_ARRAY
                    ? array_side(form, side)
                    : form->type <= CU_MEMORYTYPE_UNIFIED && linear_side(form, width, height, side);
    if (good)
        side->address += form->x + form->y * side->pitch + form->z * side->slice;
    return good;
}

/* True if the side's first and last byte lie in the same allocation. */
static bool fits(const struct side *side, const CUDA_MEMCPY3D *box) {
    size_t span = (box->Depth - 1) * side->slice + (box->Height - 1) * side->pitch + box->WidthInBytes;
    return !side->on_device || memory_holds(side->address, span);
}

CUresult copy_box(const CUDA_MEMCPY3D *box, struct work *work) {
    struct side target, source;
    const struct side_form to = {box->dstMemoryType, box->dstHost,     box->dstDevice,
                                 box->dstArray,      box->dstXInBytes, box->dstY,
                                 box->dstZ,          box->dstPitch,    box->dstHeight};
    const struct side_form from = {box->srcMemoryType, box->srcHost,     box->srcDevice,
                                   box->srcArray,      box->srcXInBytes, box->srcY,
                                   box->srcZ,          box->srcPitch,    box->srcHeight};
    if (!box->WidthInBytes || !box->Height || !box->Depth)
        return CUDA_ERROR_INVALID_VALUE;
    if (!resolve(&to, box->WidthInBytes, box->Height, &target) ||
        !resolve(&from, box->WidthInBytes, box->Height, &source) || !fits(&target, box) ||
        !fits(&source, box))
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct work){.kind = WORK_DEVICE,
                          .length_ns = length_ns(box->WidthInBytes * box->Height * box->Depth,
                                                 !target.on_device || !source.on_device),
                          .effect = move_box,
                          .type = CU_GRAPH_NODE_TYPE_MEMCPY,
                          .data = {{target.address, source.address, box->WidthInBytes, box->Height,
                                    box->Depth, target.pitch, source.pitch, target.slice, source.slice}}};
    return CUDA_SUCCESS;
}

enum { FILL_ADDRESS, FILL_PITCH, FILL_VALUE, FILL_ELEMENT, FILL_WIDTH, FILL_HEIGHT };

static void fill_row(unsigned char *row, uint64_t width, uint64_t element, uint32_t value) {
    if (element == 1)
        memset(row, (int)(value & 0xff), width);
    for (uint64_t x = 0; element > 1 && x < width; x++)
        memcpy(row + x * element, &value, element);
}

/* Clears private memory by dropping its pages, which the kernel then gives as zeros: clearing gigabytes
 * must not cost the host's RAM. */
static bool zero_lazily(const uint64_t *v) {
    const struct allocation *allocation = memory_find(v[FILL_ADDRESS]);
    bool ours = allocation && allocation->kind != MEMORY_MAPPED && allocation->kind != MEMORY_REGISTERED &&
                allocation->kind != MEMORY_IMPORTED;
    uint64_t bytes = v[FILL_WIDTH] * v[FILL_ELEMENT], end = v[FILL_ADDRESS] + bytes;
    uint64_t from = memory_round_up(v[FILL_ADDRESS], PAGE_BYTES), to = end - end % PAGE_BYTES;
    if (!ours || v[FILL_VALUE] || v[FILL_HEIGHT] != 1 || bytes < LAZY_BYTES)
        return false;
    if (madvise((void *)(uintptr_t)from, to - from, MADV_DONTNEED) != 0)
        return false;
    memset((void *)(uintptr_t)v[FILL_ADDRESS], 0, from - v[FILL_ADDRESS]);
    memset((void *)(uintptr_t)to, 0, end - to);
    return true;
}

static void fill_box(const struct work_data *data) {
    const uint64_t *v = data->values;
    if (zero_lazily(v))
        return;
    for (uint64_t y = 0; y < v[FILL_HEIGHT]; y++)
        fill_row((unsigned char *)(uintptr_t)(v[FILL_ADDRESS] + y * v[FILL_PITCH]), v[FILL_WIDTH],
                 v[FILL_ELEMENT], (uint32_t)v[FILL_VALUE]);
}

CUresult copy_fill(const CUDA_MEMSET_NODE_PARAMS *fill, struct work *work) {
    size_t row = fill->width * fill->elementSize;
    size_t pitch = fill->height > 1 ? fill->pitch : row;
    bool element = fill->elementSize == 1 || fill->elementSize == 2 || fill->elementSize == 4;
    if (!element || fill->dst % fill->elementSize || pitch < row)
        return CUDA_ERROR_INVALID_VALUE;
    if (row && fill->height && !memory_holds(fill->dst, pitch * (fill->height - 1) + row))
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct work){
        .kind = WORK_DEVICE,
        .length_ns = length_ns(row * fill->height, false),
        .effect = fill_box,
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .data = {{fill->dst, pitch, fill->value, fill->elementSize, fill->width, fill->height}}};
    return CUDA_SUCCESS;
}
