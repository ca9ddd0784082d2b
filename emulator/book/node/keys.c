/* One line of the table, and one small function, for each key. */
#include "book/node/keys.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "book/node/value.h"

struct node_gpu *node_draft_gpu(struct node_draft *draft) {
    return draft->section == NODE_MIG ? &draft->mig.rows[draft->gpu][draft->peer]
                                      : &draft->node->gpus[draft->gpu];
}

static bool set_driver(struct node_draft *draft, const char *value) {
    for (const char *c = value; *c; c++)
        if (!isdigit((unsigned char)*c) && *c != '.')
            return false;
    return node_copy_text(draft->node->driver, sizeof draft->node->driver, value);
}

static bool set_cuda(struct node_draft *draft, const char *value) {
    const char *rest;
    uint64_t major;
    unsigned minor;
    if (!node_parse_u64(value, &major, &rest) || *rest != '.' || !node_parse_count(rest + 1, 99, &minor))
        return false;
    draft->node->cuda_version = (int)(major * 1000 + minor * 10);
    return major >= 11 && major < 100;
}

static bool set_slice(struct node_draft *draft, const char *value) {
    return node_parse_time(value, &draft->node->slice_ns);
}

static bool set_sample(struct node_draft *draft, const char *value) {
    return node_parse_time(value, &draft->node->sample_ns);
}

static bool set_copy(struct node_draft *draft, const char *value) {
    return node_parse_bytes(value, &draft->node->copy_bytes_per_s) &&
           draft->node->copy_bytes_per_s >= 1 << 20;
}

static bool set_event_us(struct node_draft *draft, const char *value) {
    return node_parse_us(value, &draft->node->event_ns);
}

static bool set_query_us(struct node_draft *draft, const char *value) {
    return node_parse_us(value, &draft->node->query_ns);
}

static bool set_launch_us(struct node_draft *draft, const char *value) {
    return node_parse_us(value, &draft->node->launch_ns);
}

static bool set_private_addresses(struct node_draft *draft, const char *value) {
    draft->node->has_private_addresses = strcmp(value, "yes") == 0;
    return draft->node->has_private_addresses || strcmp(value, "no") == 0;
}

static bool set_uuid(struct node_draft *draft, const char *value) {
    return node_valid_uuid(value, draft->section == NODE_MIG ? "MIG-" : "GPU-") &&
           node_copy_text(node_draft_gpu(draft)->uuid, NODE_UUID_BYTES, value);
}

static bool set_model(struct node_draft *draft, const char *value) {
    return node_copy_text(node_draft_gpu(draft)->model, NODE_MODEL_BYTES, value);
}

static bool set_memory(struct node_draft *draft, const char *value) {
    return node_parse_bytes(value, &node_draft_gpu(draft)->memory_bytes) &&
           node_draft_gpu(draft)->memory_bytes >= 64 << 20 &&
           node_draft_gpu(draft)->memory_bytes <= 1ull << 40;
}

static bool set_reserved(struct node_draft *draft, const char *value) {
    return node_parse_bytes(value, &node_draft_gpu(draft)->reserved_bytes);
}

static bool set_module(struct node_draft *draft, const char *value) {
    return node_parse_bytes(value, &node_draft_gpu(draft)->module_bytes);
}

static bool set_context(struct node_draft *draft, const char *value) {
    return node_parse_bytes(value, &node_draft_gpu(draft)->context_bytes);
}

static bool set_mig(struct node_draft *draft, const char *value) {
    node_draft_gpu(draft)->is_mig = strcmp(value, "yes") == 0;
    return node_draft_gpu(draft)->is_mig || strcmp(value, "no") == 0;
}

static bool set_profile(struct node_draft *draft, const char *value) {
    return node_set_profile(node_draft_gpu(draft), value);
}

static bool set_compute(struct node_draft *draft, const char *value) {
    const char *rest;
    uint64_t major;
    if (!node_parse_u64(value, &major, &rest) || *rest != '.' || major < 3 || major > 99)
        return false;
    node_draft_gpu(draft)->compute_major = (unsigned)major;
    return node_parse_count(rest + 1, 9, &node_draft_gpu(draft)->compute_minor);
}

static bool set_sms(struct node_draft *draft, const char *value) {
    return node_parse_count(value, 1024, &node_draft_gpu(draft)->sm_count) &&
           node_draft_gpu(draft)->sm_count > 0;
}

static bool set_pci(struct node_draft *draft, const char *value) {
    unsigned domain, bus, device;
    int used = 0;
    if (sscanf(value, "%8x:%2x:%2x.0%n", &domain, &bus, &device, &used) != 3 || !used || value[used])
        return false;
    node_draft_gpu(draft)->pci_domain = domain;
    node_draft_gpu(draft)->pci_bus = bus;
    node_draft_gpu(draft)->pci_device = device;
    return device < 32;
}

static bool set_numa(struct node_draft *draft, const char *value) {
    unsigned numa;
    if (strcmp(value, "-1") == 0) {
        node_draft_gpu(draft)->numa = -1;
        return true;
    }
    if (!node_parse_count(value, 63, &numa))
        return false;
    node_draft_gpu(draft)->numa = (int)numa;
    return true;
}

static bool set_cpus(struct node_draft *draft, const char *value) {
    return node_parse_cpus(value, node_draft_gpu(draft)->cpus);
}

static bool set_path(struct node_draft *draft, const char *value) {
    static const char *const names[] = {"", "PIX", "PXB", "PHB", "NODE", "SYS"};
    struct node_link link = draft->node->links[draft->gpu][draft->peer];
    bool known = false;
    for (unsigned i = NODE_PATH_PIX; i <= NODE_PATH_SYS; i++) {
        if (strcmp(value, names[i]) == 0) {
            link.path = (enum node_path)i;
            known = true;
        }
    }
    if (!known && strncmp(value, "NV", 2) == 0)
        known = node_parse_count(value + 2, 18, &link.nvlink_count) && link.nvlink_count > 0;
    draft->node->links[draft->gpu][draft->peer] = draft->node->links[draft->peer][draft->gpu] = link;
    draft->linked[draft->gpu][draft->peer] = draft->linked[draft->peer][draft->gpu] |=
        known && !link.nvlink_count;
    return known;
}

static const struct node_key keys[] = {
    {NODE_TOP, "driver", set_driver, "give the driver's version, such as 570.124.06"},
    {NODE_TOP, "cuda", set_cuda, "give the CUDA version of the driver, such as 12.8"},
    {NODE_TOP, "slice", set_slice, "give a process's turn between 50us and 10s, such as 2ms"},
    {NODE_TOP, "sample", set_sample,
     "give the spacing of utilisation samples between 50us and 10s, such as 100ms"},
    {NODE_TOP, "copy", set_copy, "give the bytes copied per second, at least 1Mi, such as 12Gi"},
    {NODE_TOP, "event-us", set_event_us, "give microseconds between 0 and 10000, such as 0.5"},
    {NODE_TOP, "query-us", set_query_us, "give microseconds between 0 and 10000, such as 0.3"},
    {NODE_TOP, "launch-us", set_launch_us, "give microseconds between 0 and 10000, such as 2"},
    {NODE_TOP, "private-addresses", set_private_addresses, "give yes or no"},
    {NODE_GPU, "uuid", set_uuid,
     "give GPU- and a lower-case UUID, such as GPU-5a1c0d2e-0000-0000-0000-000000000001"},
    {NODE_GPU, "model", set_model, "give a name of 1 to 95 characters, such as NVIDIA L4"},
    {NODE_GPU, "memory", set_memory,
     "give the card's total between 64Mi and 1Ti, such as 24Gi, 512Mi or bytes"},
    {NODE_GPU, "reserved", set_reserved, "give the bytes the driver keeps, such as 512Mi"},
    {NODE_GPU, "context", set_context, "give the bytes one context costs, such as 300Mi"},
    {NODE_GPU, "module", set_module,
     "give the bytes in whose multiples modules cost memory, such as 2Mi, or 0"},
    {NODE_GPU, "mig", set_mig, "give yes or no"},
    {NODE_GPU, "compute", set_compute, "give the compute capability, such as 8.9"},
    {NODE_GPU, "sms", set_sms, "give the number of multiprocessors between 1 and 1024, such as 58"},
    {NODE_GPU, "pci", set_pci, "give domain:bus:device.0 in hexadecimal, such as 0000:17:00.0"},
    {NODE_GPU, "numa", set_numa, "give the NUMA node between 0 and 63, or -1 for none"},
    {NODE_GPU, "cpus", set_cpus, "give CPUs below 1024 as a list of ranges, such as 0-15,32-47"},
    {NODE_MIG, "uuid", set_uuid,
     "give MIG- and a lower-case UUID, such as MIG-5a1c0d2e-0000-0000-0000-000000000001"},
    {NODE_MIG, "profile", set_profile, "give slices and gigabytes, such as 1g.5gb or 3g.20gb"},
    {NODE_MIG, "memory", set_memory, "give the instance's total between 64Mi and 1Ti, such as 4864Mi"},
    {NODE_MIG, "sms", set_sms, "give the number of multiprocessors between 1 and 1024, such as 14"},
    {NODE_LINK, "path", set_path, "give one of NV1 to NV18, PIX, PXB, PHB, NODE, SYS"},
};

const struct node_key *node_key_named(enum node_section section, const char *name) {
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (keys[i].section == section && strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}
