#include "cuda/memory/array/mapping.h"

#include <stdlib.h>
#include <string.h>

struct mapping {
    struct mapping *next;
    const void *array; /* CUarray or CUmipmappedArray */
    CUarraySparseSubresourceType type;
    unsigned char where[sizeof(((CUarrayMapInfo *)0)->subresource)];
    CUcontext context;
    struct physical *physical;
};

static struct mapping *first; /* lock */

static struct mapping **find(const CUarrayMapInfo *info) {
    struct mapping **link = &first;
    while (*link &&
           ((*link)->array != (const void *)info->resource.array || (*link)->type != info->subresourceType ||
            memcmp((*link)->where, &info->subresource, sizeof info->subresource) != 0))
        link = &(*link)->next;
    return link;
}

static void unmap(struct mapping **link) {
    struct mapping *mapping = *link;
    if (!mapping)
        return;
    *link = mapping->next;
    vmm_release(mapping->physical);
    free(mapping);
}

CUresult array_map(CUcontext context, const CUarrayMapInfo *info, struct physical *physical) {
    struct mapping *mapping = physical ? calloc(1, sizeof *mapping) : NULL;
    if (physical && !mapping)
        return CUDA_ERROR_OUT_OF_MEMORY;
    unmap(find(info));
    if (!mapping)
        return CUDA_SUCCESS;
    *mapping = (struct mapping){
        .next = first, .array = info->resource.array, .type = info->subresourceType, .physical = physical};
    mapping->context = context;
    memcpy(mapping->where, &info->subresource, sizeof mapping->where);
    physical->uses++;
    first = mapping;
    return CUDA_SUCCESS;
}

void array_unmap_all(const void *array_or_context) {
    for (struct mapping **link = &first; *link;) {
        if ((*link)->array == array_or_context || (*link)->context == array_or_context)
            unmap(link);
        else
            link = &(*link)->next;
    }
}
