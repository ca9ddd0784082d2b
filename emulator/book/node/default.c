/* The values of a node file that says nothing. */
#include "book/node/default.h"

#include <stdio.h>
#include <string.h>

void node_default_uuid(const char *path, const char *kind, unsigned index, char uuid[NODE_UUID_BYTES]) {
    uint64_t hash = 14695981039346656037ull;
    for (const char *c = path; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211ull;
    snprintf(uuid, NODE_UUID_BYTES, "%s-%08x-%04x-4000-8000-%012x", kind, (unsigned)(hash >> 32),
             (unsigned)(hash >> 16 & 0xffff), index);
}

void node_set_defaults(struct node_file *node) {
    snprintf(node->driver, sizeof node->driver, "570.124.06");
    node->cuda_version = 12080;
    node->slice_ns = 2000000;
    node->sample_ns = 100000000;
    node->copy_bytes_per_s = 12ull << 30;
    node->event_ns = 500;
    node->query_ns = 300;
    node->launch_ns = 2000;
    for (int i = 0; i < NODE_MAX_GPUS; i++) {
        struct node_gpu *gpu = &node->gpus[i];
        node_default_uuid(node->path, "GPU", (unsigned)i, gpu->uuid);
        gpu->card = i;
        snprintf(gpu->model, sizeof gpu->model, "Emulated GPU");
        gpu->memory_bytes = 24ull << 30;
        gpu->context_bytes = 300u << 20;
        gpu->compute_major = 8;
        gpu->compute_minor = 9;
        gpu->sm_count = 58;
        gpu->pci_bus = 0x17 + 8 * (unsigned)i;
        memset(gpu->cpus, 0xff, sizeof gpu->cpus);
    }
}
