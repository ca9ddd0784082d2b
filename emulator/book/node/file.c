/* Parses the description of one emulated node; node.h states the invariants of the result. Each kind of
 * section has one table of keys, so a new key is one line and one small function. */
#include "book/node_file.h"
#include "book/node_default.h"
#include "book/node_instance.h"
#include "book/node_value.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum section { TOP, GPU, MIG, LINK };

struct parser {
    struct node_file *node;
    char *message;
    unsigned line;
    enum section section;
    int gpu, peer; /* of the section; in [mig N M], the card and the number */
    struct node_instances mig;
    bool described[NODE_MAX_GPUS];
    bool linked[NODE_MAX_GPUS][NODE_MAX_GPUS];
    bool numa_given[NODE_MAX_GPUS];
};

static bool refuse(struct parser *p, const char *field, const char *value, const char *remedy) {
    snprintf(p->message, NODE_MESSAGE_BYTES, "%.1000s:%u: %.60s = '%.100s': %.300s", p->node->path, p->line,
             field, value, remedy);
    return false;
}

static struct node_gpu *gpu_of(struct parser *p) {
    return p->section == MIG ? &p->mig.rows[p->gpu][p->peer] : &p->node->gpus[p->gpu];
}

static bool set_driver(struct parser *p, const char *value) {
    for (const char *c = value; *c; c++)
        if (!isdigit((unsigned char)*c) && *c != '.')
            return false;
    return node_copy_text(p->node->driver, sizeof p->node->driver, value);
}

static bool set_cuda(struct parser *p, const char *value) {
    const char *rest;
    uint64_t major;
    unsigned minor;
    if (!node_parse_u64(value, &major, &rest) || *rest != '.' || !node_parse_count(rest + 1, 99, &minor))
        return false;
    p->node->cuda_version = (int)(major * 1000 + minor * 10);
    return major >= 11 && major < 100;
}

static bool set_slice(struct parser *p, const char *value) {
    return node_parse_time(value, &p->node->slice_ns);
}

static bool set_sample(struct parser *p, const char *value) {
    return node_parse_time(value, &p->node->sample_ns);
}

static bool set_copy(struct parser *p, const char *value) {
    return node_parse_bytes(value, &p->node->copy_bytes_per_s) && p->node->copy_bytes_per_s >= 1 << 20;
}

static bool set_event_us(struct parser *p, const char *value) {
    return node_parse_us(value, &p->node->event_ns);
}

static bool set_query_us(struct parser *p, const char *value) {
    return node_parse_us(value, &p->node->query_ns);
}

static bool set_launch_us(struct parser *p, const char *value) {
    return node_parse_us(value, &p->node->launch_ns);
}

static bool set_private_addresses(struct parser *p, const char *value) {
    p->node->has_private_addresses = strcmp(value, "yes") == 0;
    return p->node->has_private_addresses || strcmp(value, "no") == 0;
}

static bool set_uuid(struct parser *p, const char *value) {
    return node_valid_uuid(value, p->section == MIG ? "MIG-" : "GPU-") &&
           node_copy_text(gpu_of(p)->uuid, NODE_UUID_BYTES, value);
}

static bool set_model(struct parser *p, const char *value) {
    return node_copy_text(gpu_of(p)->model, NODE_MODEL_BYTES, value);
}

static bool set_memory(struct parser *p, const char *value) {
    return node_parse_bytes(value, &gpu_of(p)->memory_bytes) && gpu_of(p)->memory_bytes >= 64 << 20 &&
           gpu_of(p)->memory_bytes <= 1ull << 40;
}

static bool set_reserved(struct parser *p, const char *value) {
    return node_parse_bytes(value, &gpu_of(p)->reserved_bytes);
}

static bool set_module(struct parser *p, const char *value) {
    return node_parse_bytes(value, &gpu_of(p)->module_bytes);
}

static bool set_context(struct parser *p, const char *value) {
    return node_parse_bytes(value, &gpu_of(p)->context_bytes);
}

static bool set_mig(struct parser *p, const char *value) {
    gpu_of(p)->is_mig = strcmp(value, "yes") == 0;
    return gpu_of(p)->is_mig || strcmp(value, "no") == 0;
}

static bool set_profile(struct parser *p, const char *value) {
    return node_set_profile(gpu_of(p), value);
}

static bool set_compute(struct parser *p, const char *value) {
    const char *rest;
    uint64_t major;
    if (!node_parse_u64(value, &major, &rest) || *rest != '.' || major < 3 || major > 99)
        return false;
    gpu_of(p)->compute_major = (unsigned)major;
    return node_parse_count(rest + 1, 9, &gpu_of(p)->compute_minor);
}

static bool set_sms(struct parser *p, const char *value) {
    return node_parse_count(value, 1024, &gpu_of(p)->sm_count) && gpu_of(p)->sm_count > 0;
}

static bool set_pci(struct parser *p, const char *value) {
    unsigned domain, bus, device;
    int used = 0;
    if (sscanf(value, "%8x:%2x:%2x.0%n", &domain, &bus, &device, &used) != 3 || !used || value[used])
        return false;
    gpu_of(p)->pci_domain = domain;
    gpu_of(p)->pci_bus = bus;
    gpu_of(p)->pci_device = device;
    return device < 32;
}

static bool set_numa(struct parser *p, const char *value) {
    unsigned numa;
    p->numa_given[p->gpu] = true;
    if (strcmp(value, "-1") == 0) {
        gpu_of(p)->numa = -1;
        return true;
    }
    if (!node_parse_count(value, 63, &numa))
        return false;
    gpu_of(p)->numa = (int)numa;
    return true;
}

static bool set_cpus(struct parser *p, const char *value) {
    return node_parse_cpus(value, gpu_of(p)->cpus);
}

static bool set_path(struct parser *p, const char *value) {
    static const char *const names[] = {"", "PIX", "PXB", "PHB", "NODE", "SYS"};
    struct node_link link = p->node->links[p->gpu][p->peer];
    bool known = false;
    for (unsigned i = NODE_PATH_PIX; i <= NODE_PATH_SYS; i++) {
        if (strcmp(value, names[i]) == 0) {
            link.path = (enum node_path)i;
            known = true;
        }
    }
    if (!known && strncmp(value, "NV", 2) == 0)
        known = node_parse_count(value + 2, 18, &link.nvlink_count) && link.nvlink_count > 0;
    p->node->links[p->gpu][p->peer] = p->node->links[p->peer][p->gpu] = link;
    p->linked[p->gpu][p->peer] = p->linked[p->peer][p->gpu] |= known && !link.nvlink_count;
    return known;
}

static const struct key {
    enum section section;
    const char *name;
    bool (*set)(struct parser *, const char *);
    const char *remedy;
} keys[] = {
    {TOP, "driver", set_driver, "give the driver's version, such as 570.124.06"},
    {TOP, "cuda", set_cuda, "give the CUDA version of the driver, such as 12.8"},
    {TOP, "slice", set_slice, "give a process's turn between 50us and 10s, such as 2ms"},
    {TOP, "sample", set_sample,
     "give the spacing of utilisation samples between 50us and 10s, such as 100ms"},
    {TOP, "copy", set_copy, "give the bytes copied per second, at least 1Mi, such as 12Gi"},
    {TOP, "event-us", set_event_us, "give microseconds between 0 and 10000, such as 0.5"},
    {TOP, "query-us", set_query_us, "give microseconds between 0 and 10000, such as 0.3"},
    {TOP, "launch-us", set_launch_us, "give microseconds between 0 and 10000, such as 2"},
    {TOP, "private-addresses", set_private_addresses, "give yes or no"},
    {GPU, "uuid", set_uuid,
     "give GPU- and a lower-case UUID, such as GPU-5a1c0d2e-0000-0000-0000-000000000001"},
    {GPU, "model", set_model, "give a name of 1 to 95 characters, such as NVIDIA L4"},
    {GPU, "memory", set_memory, "give the card's total between 64Mi and 1Ti, such as 24Gi, 512Mi or bytes"},
    {GPU, "reserved", set_reserved, "give the bytes the driver keeps, such as 512Mi"},
    {GPU, "context", set_context, "give the bytes one context costs, such as 300Mi"},
    {GPU, "module", set_module, "give the bytes in whose multiples modules cost memory, such as 2Mi, or 0"},
    {GPU, "mig", set_mig, "give yes or no"},
    {GPU, "compute", set_compute, "give the compute capability, such as 8.9"},
    {GPU, "sms", set_sms, "give the number of multiprocessors between 1 and 1024, such as 58"},
    {GPU, "pci", set_pci, "give domain:bus:device.0 in hexadecimal, such as 0000:17:00.0"},
    {GPU, "numa", set_numa, "give the NUMA node between 0 and 63, or -1 for none"},
    {GPU, "cpus", set_cpus, "give CPUs below 1024 as a list of ranges, such as 0-15,32-47"},
    {MIG, "uuid", set_uuid,
     "give MIG- and a lower-case UUID, such as MIG-5a1c0d2e-0000-0000-0000-000000000001"},
    {MIG, "profile", set_profile, "give slices and gigabytes, such as 1g.5gb or 3g.20gb"},
    {MIG, "memory", set_memory, "give the instance's total between 64Mi and 1Ti, such as 4864Mi"},
    {MIG, "sms", set_sms, "give the number of multiprocessors between 1 and 1024, such as 14"},
    {LINK, "path", set_path, "give one of NV1 to NV18, PIX, PXB, PHB, NODE, SYS"},
};

static char *trim(char *text) {
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    return text;
}

static bool read_key(struct parser *p, char *text) {
    char *equals = strchr(text, '=');
    if (!equals)
        return refuse(p, "line", text,
                      "write `key = value`, `[gpu N]`, `[mig N M]`, `[link N M]` or a `#` comment");
    *equals = '\0';
    const char *name = trim(text), *value = trim(equals + 1);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (keys[i].section == p->section && strcmp(keys[i].name, name) == 0)
            return keys[i].set(p, value) || refuse(p, name, value, keys[i].remedy);
    return refuse(
        p, name, value,
        p->section == TOP   ? "no such key before the sections; known: driver, cuda, slice, sample, copy, "
                              "event-us, query-us, launch-us, private-addresses"
        : p->section == GPU ? "no such key in [gpu]; known: uuid, model, memory, reserved, context, module, "
                              "mig, compute, sms, pci, numa, cpus"
        : p->section == MIG ? "no such key in [mig]; known: uuid, profile, memory, sms"
                            : "no such key in [link]; known: path");
}

static bool open_gpu(struct parser *p, int index, const char *text) {
    if (index < 0 || index >= NODE_MAX_GPUS)
        return refuse(p, "section", text, "number the GPUs from 0 to 15");
    if (p->described[index])
        return refuse(p, "section", text, "describe each GPU once");
    p->section = GPU;
    p->gpu = index;
    p->described[index] = true;
    return true;
}

static bool open_mig(struct parser *p, int card, int number, const char *text) {
    if (card < 0 || card >= NODE_MAX_GPUS || !p->described[card] || !p->node->gpus[card].is_mig)
        return refuse(p, "section", text, "name a GPU that is described above this line with mig = yes");
    if (number < 0 || number >= NODE_MAX_INSTANCES)
        return refuse(p, "section", text, "number the instances of a GPU from 0 to 6");
    p->section = MIG;
    p->gpu = card;
    p->peer = number;
    gpu_of(p)->is_mig = true;
    return true;
}

static bool open_link(struct parser *p, int one, int other, const char *text) {
    if (one < 0 || other < 0 || one >= NODE_MAX_GPUS || other >= NODE_MAX_GPUS || one == other ||
        !p->described[one] || !p->described[other])
        return refuse(p, "section", text, "name two different GPUs that are described above this line");
    p->section = LINK;
    p->gpu = one;
    p->peer = other;
    return true;
}

static bool read_section(struct parser *p, const char *text) {
    int one, other, used = 0;
    if (sscanf(text, "[gpu %d]%n", &one, &used) == 1 && used && !text[used])
        return open_gpu(p, one, text);
    if (sscanf(text, "[link %d %d]%n", &one, &other, &used) == 2 && used && !text[used])
        return open_link(p, one, other, text);
    if (sscanf(text, "[mig %d %d]%n", &one, &other, &used) == 2 && used && !text[used])
        return open_mig(p, one, other, text);
    return refuse(p, "section", text, "write [gpu N], [mig N M] or [link N M]");
}

static bool read_line(struct parser *p, char *line) {
    char *comment = strchr(line, '#');
    if (comment)
        *comment = '\0';
    char *text = trim(line);
    if (!*text)
        return true;
    return *text == '[' ? read_section(p, text) : read_key(p, text);
}

static bool read_lines(struct parser *p, FILE *file) {
    char line[1024];
    while (fgets(line, sizeof line, file)) {
        p->line++;
        if (strlen(line) == sizeof line - 1)
            return refuse(p, "line", "(too long)", "keep lines below 1000 characters");
        if (!read_line(p, line))
            return false;
    }
    return !ferror(file) || refuse(p, "file", strerror(errno), "make the file readable");
}

static bool check_gpu(struct parser *p, int index) {
    const struct node_gpu *gpu = &p->node->gpus[index];
    uint64_t kept;
    if (__builtin_add_overflow(gpu->reserved_bytes, gpu->context_bytes, &kept) || kept > gpu->memory_bytes)
        return refuse(p, "reserved", "(plus context)", "must leave room within memory for one context");
    for (int other = 0; other < index; other++) {
        const struct node_gpu *one = &p->node->gpus[other];
        if (strcmp(one->uuid, gpu->uuid) == 0)
            return refuse(p, "uuid", gpu->uuid, "give each GPU a uuid of its own");
        if (one->pci_domain == gpu->pci_domain && one->pci_bus == gpu->pci_bus &&
            one->pci_device == gpu->pci_device)
            return refuse(p, "pci", "(twice)", "give each GPU a PCI address of its own");
    }
    return true;
}

static void fill_links(struct parser *p) {
    for (int a = 0; a < p->node->gpu_count; a++)
        for (int b = 0; b < p->node->gpu_count; b++)
            if (!p->linked[a][b])
                p->node->links[a][b].path = a == b                                           ? NODE_PATH_SELF
                                            : p->node->gpus[a].numa == p->node->gpus[b].numa ? NODE_PATH_NODE
                                                                                             : NODE_PATH_SYS;
}

static bool check(struct parser *p) {
    while (p->node->gpu_count < NODE_MAX_GPUS && p->described[p->node->gpu_count])
        p->node->gpu_count++;
    if (!p->node->gpu_count)
        return refuse(p, "section", "(none)", "describe at least [gpu 0]");
    for (int i = p->node->gpu_count; i < NODE_MAX_GPUS; i++) {
        char section[16];
        snprintf(section, sizeof section, "[gpu %d]", i);
        if (p->described[i])
            return refuse(p, "section", section, "number the GPUs from 0 without gaps");
    }
    for (int i = 0; i < p->node->gpu_count; i++)
        if (!check_gpu(p, i))
            return false;
    fill_links(p);
    struct node_fault fault = {0};
    return node_place_instances(p->node, &p->mig, &fault) ||
           refuse(p, fault.field, fault.value, fault.remedy);
}

/* A container sees the GPUs whose device files its runtime made. */
static void find_shown(struct node_file *node) {
    char device[NODE_PATH_BYTES + 32];
    const char *devices = getenv(NODE_DEVICES_VARIABLE);
    if (!devices && strcmp(node->path, NODE_FILE_MOUNTED) == 0)
        devices = "/dev";
    for (int i = 0; i < node->gpu_count; i++) {
        snprintf(device, sizeof device, "%.1023s/nvidia%d", devices ? devices : "", i);
        if (!devices || access(device, F_OK) == 0)
            node->shown[node->shown_count++] = i;
    }
}

const char *node_file_path(void) {
    const char *path = getenv(NODE_FILE_VARIABLE);
    if (!path && access(NODE_FILE_MOUNTED, F_OK) == 0)
        path = NODE_FILE_MOUNTED;
    return path;
}

bool node_file_read(const char *path, struct node_file *node, char message[NODE_MESSAGE_BYTES]) {
    struct parser parser = {.node = node, .message = message};
    memset(node, 0, sizeof *node);
    if (!path || !*path || strlen(path) >= sizeof node->path - sizeof ".state") {
        snprintf(message, NODE_MESSAGE_BYTES, "%s = '%.60s': name the file that describes the emulated node",
                 NODE_FILE_VARIABLE, path ? path : "");
        return false;
    }
    node_copy_text(node->path, sizeof node->path, path);
    node_set_defaults(node);
    FILE *file = fopen(path, "re");
    if (!file)
        return refuse(&parser, NODE_FILE_VARIABLE, path, strerror(errno));
    bool good = read_lines(&parser, file);
    fclose(file);
    good = good && check(&parser);
    find_shown(node);
    return good;
}
