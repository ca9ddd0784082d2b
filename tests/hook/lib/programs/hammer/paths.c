#define _GNU_SOURCE
#include "paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define SHAREABLE CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define BLOCK (2 * MIB) /* what the driver takes at once: with whole blocks the line is exact */

struct tally tallies[PATH_END];

#define PATH_TEXT(name) #name,
const char *const path_names[PATH_END] = {PATHS(PATH_TEXT)};

unsigned draw(struct hand *hand, unsigned end) {
    hand->random ^= hand->random << 13;
    hand->random ^= hand->random >> 7;
    hand->random ^= hand->random << 17;
    return (unsigned)((hand->random >> 32) % end);
}

bool granted(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
        return result == CUDA_SUCCESS;
    fprintf(stderr, "hammer: %s answered %d\n", what, result);
    _exit(3);
}

void must(CUresult result, const char *what) {
    if (!granted(result, what)) {
        fprintf(stderr, "hammer: %s found no memory\n", what);
        _exit(3);
    }
}

/* --- taking ----------------------------------------------------------------------------------------------
 */

static CUresult take_array(struct item *item) {
    CUDA_ARRAY_DESCRIPTOR flat = {1024, item->bytes / 4096, CU_AD_FORMAT_FLOAT, 1};
    CUDA_ARRAY3D_DESCRIPTOR solid = {512, 32, item->bytes / (512 * 32 * 4), CU_AD_FORMAT_FLOAT, 1, 0};
    CUDA_ARRAY3D_DESCRIPTOR sheet = {1024, item->bytes / 4096, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    if (item->path == PATH_array)
        return cuArrayCreate((CUarray *)&item->handle, &flat);
    if (item->path == PATH_array3d)
        return cuArray3DCreate((CUarray *)&item->handle, &solid);
    return cuMipmappedArrayCreate((CUmipmappedArray *)&item->handle, &sheet, 1);
}

static CUresult create(struct hand *hand, struct item *item) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    prop.requestedHandleTypes = item->path == PATH_export ? SHAREABLE : CU_MEM_HANDLE_TYPE_NONE;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = draw(hand, 4) ? hand->device : hand->other;
    return cuMemCreate(&item->handle, item->bytes, &prop, 0);
}

/* CUDA's own samples release a handle as soon as it is mapped; here that is done every other time. */
static CUresult create_and_map(struct hand *hand, struct item *item) {
    CUmemGenericAllocationHandle again = 0;
    CUresult result = create(hand, item);
    if (result != CUDA_SUCCESS)
        return result;
    MUST(cuMemAddressReserve(&item->address, item->bytes, 0, 0, 0));
    MUST(cuMemMap(item->address, item->bytes, 0, item->handle, 0));
    if (draw(hand, 2)) {
        MUST(cuMemRelease(item->handle));
        item->handle = 0;
    }
    if (draw(hand, 2)) {
        MUST(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)item->address));
        MUST(cuMemRelease(again));
    }
    return CUDA_SUCCESS;
}

/* --- between processes -----------------------------------------------------------------------------------
 */

/* One descriptor and a byte to carry it. */
union letter {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
};

static bool send_letter(int socket, int descriptor) {
    union letter letter = {
        .head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec byte = {(char[]){0}, 1};
    struct msghdr message = {
        .msg_iov = &byte, .msg_iovlen = 1, .msg_control = &letter, .msg_controllen = sizeof(letter)};
    memcpy(CMSG_DATA(&letter.head), &descriptor, sizeof(descriptor));
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

/* The descriptor of some letter, or -1. */
static int receive_letter(int socket) {
    union letter letter = {.head = {.cmsg_len = 0}};
    struct iovec byte = {(char[]){0}, 1};
    struct msghdr message = {
        .msg_iov = &byte, .msg_iovlen = 1, .msg_control = &letter, .msg_controllen = sizeof(letter)};
    int descriptor = -1;
    if (recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) == 1 &&
        letter.head.cmsg_type == SCM_RIGHTS)
        memcpy(&descriptor, CMSG_DATA(&letter.head), sizeof(descriptor));
    return descriptor;
}

static CUresult export_to_other(struct hand *hand, struct item *item) {
    int descriptor = -1;
    CUresult result = create(hand, item);
    if (result != CUDA_SUCCESS)
        return result;
    MUST(cuMemExportToShareableHandle(&descriptor, item->handle, SHAREABLE, 0));
    send_letter(hand->letters_out, descriptor);
    close(descriptor);
    return CUDA_SUCCESS;
}

/* Memory that lost its last holder meanwhile cannot be had any more: as good as refused. */
static CUresult import_from_other(struct hand *hand, struct item *item) {
    int descriptor = receive_letter(hand->letters_in);
    if (descriptor < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuMemImportFromShareableHandle(&item->handle, (void *)(intptr_t)descriptor, SHAREABLE);
    close(descriptor);
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

static CUresult take(struct hand *hand, struct item *item) {
    size_t pitch;
    switch (item->path) {
    case PATH_alloc:
        return cuMemAlloc(&item->handle, item->bytes);
    case PATH_pitch: /* rows that the driver widens to 4096 bytes */
        return cuMemAllocPitch(&item->handle, &pitch, 4000, item->bytes / 4096, 4);
    case PATH_managed:
        return cuMemAllocManaged(&item->handle, item->bytes, CU_MEM_ATTACH_GLOBAL);
    case PATH_create:
        return create(hand, item);
    case PATH_map:
        return create_and_map(hand, item);
    case PATH_export:
        return export_to_other(hand, item);
    case PATH_import:
        return import_from_other(hand, item);
    case PATH_graph:
    case PATH_capture:
        return take_by_graph(hand, item);
    case PATH_async:
        return cuMemAllocAsync(&item->handle, item->bytes, NULL);
    case PATH_pool:
        return cuMemAllocFromPoolAsync(&item->handle, item->bytes, hand->pool, NULL);
    default:
        return take_array(item);
    }
}

bool take_any(struct hand *hand) {
    enum path path = (enum path)hand->chosen[draw(hand, hand->chosen_count)];
    /* Mostly small, so that the line is filled to the last block, and sometimes large. */
    unsigned most_blocks = draw(hand, 4) ? 4 : hand->largest_mib / 2;
    struct item item = {.path = path, .bytes = (1 + draw(hand, most_blocks)) * BLOCK};
    if (hand->item_count == MOST_ITEMS)
        return false;
    bool is_granted = granted(take(hand, &item), path_names[path]);
    struct tally *tally = &tallies[path];
    __atomic_fetch_add(is_granted ? &tally->granted : &tally->refused, 1, __ATOMIC_RELAXED);
    if (is_granted)
        hand->items[hand->item_count++] = item;
    return is_granted;
}

/* --- giving back -----------------------------------------------------------------------------------------
 */

static void give(struct hand *hand, const struct item *item) {
    switch (item->path) {
    case PATH_array:
    case PATH_array3d:
        MUST(cuArrayDestroy((CUarray)item->handle));
        break;
    case PATH_mipmap:
        MUST(cuMipmappedArrayDestroy((CUmipmappedArray)item->handle));
        break;
    case PATH_map:
        MUST(cuMemUnmap(item->address, item->bytes));
        MUST(cuMemAddressFree(item->address, item->bytes));
        if (item->handle)
            MUST(cuMemRelease(item->handle));
        break;
    case PATH_create:
    case PATH_export:
    case PATH_import:
        MUST(cuMemRelease(item->handle));
        break;
    case PATH_graph:
    case PATH_capture:
        give_graph(hand, item);
        break;
    case PATH_async:
    case PATH_pool:
    case PATH_alloc:
        if (draw(hand, 2)) {
            MUST(cuMemFreeAsync(item->handle, NULL));
            break;
        } /* fall through */
    default:
        MUST(cuMemFree(item->handle));
    }
}

void give_back(struct hand *hand, unsigned index) {
    struct item item = hand->items[index];
    hand->items[index] = hand->items[--hand->item_count];
    give(hand, &item);
}

void give_back_all(struct hand *hand) {
    while (hand->item_count)
        give_back(hand, hand->item_count - 1);
}

void forget_context(struct hand *hand) {
    for (unsigned i = hand->item_count; i-- > 0;)
        switch (hand->items[i].path) {
        case PATH_create:
        case PATH_map:
        case PATH_export:
        case PATH_import:
            give_back(hand, i);
            break;
        default:
            break;
        }
    hand->item_count = 0;
}
