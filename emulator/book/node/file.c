/* Parses the description of one emulated node: its lines, its sections, and whether they fit together. node.h
 * states the invariants of the result. */
#include "book/node/file.h"
#include "book/node/default.h"
#include "book/node/instance.h"
#include "book/node/keys.h"
#include "book/node/value.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct parser {
    struct node_draft draft;
    char *message;
    unsigned line;
    bool described[NODE_MAX_GPUS];
};

static bool refuse(struct parser *p, const char *field, const char *value, const char *remedy) {
    snprintf(p->message, NODE_MESSAGE_BYTES, "%.1000s:%u: %.60s = '%.100s': %.300s", p->draft.node->path,
             p->line, field, value, remedy);
    return false;
}

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
    const struct node_key *key = node_key_named(p->draft.section, name);
    if (key)
        return key->set(&p->draft, value) || refuse(p, name, value, key->remedy);
    return refuse(p, name, value,
                  p->draft.section == NODE_TOP
                      ? "no such key before the sections; known: driver, cuda, slice, sample, copy, "
                        "event-us, query-us, launch-us, private-addresses"
                  : p->draft.section == NODE_GPU
                      ? "no such key in [gpu]; known: uuid, model, memory, reserved, context, module, "
                        "mig, compute, sms, pci, numa, cpus"
                  : p->draft.section == NODE_MIG ? "no such key in [mig]; known: uuid, profile, memory, sms"
                                                 : "no such key in [link]; known: path");
}

static bool open_gpu(struct parser *p, int index, const char *text) {
    if (index < 0 || index >= NODE_MAX_GPUS)
        return refuse(p, "section", text, "number the GPUs from 0 to 15");
    if (p->described[index])
        return refuse(p, "section", text, "describe each GPU once");
    p->draft.section = NODE_GPU;
    p->draft.gpu = index;
    p->described[index] = true;
    return true;
}

static bool open_mig(struct parser *p, int card, int number, const char *text) {
    if (card < 0 || card >= NODE_MAX_GPUS || !p->described[card] || !p->draft.node->gpus[card].is_mig)
        return refuse(p, "section", text, "name a GPU that is described above this line with mig = yes");
    if (number < 0 || number >= NODE_MAX_INSTANCES)
        return refuse(p, "section", text, "number the instances of a GPU from 0 to 6");
    p->draft.section = NODE_MIG;
    p->draft.gpu = card;
    p->draft.peer = number;
    node_draft_gpu(&p->draft)->is_mig = true;
    return true;
}

static bool open_link(struct parser *p, int one, int other, const char *text) {
    if (one < 0 || other < 0 || one >= NODE_MAX_GPUS || other >= NODE_MAX_GPUS || one == other ||
        !p->described[one] || !p->described[other])
        return refuse(p, "section", text, "name two different GPUs that are described above this line");
    p->draft.section = NODE_LINK;
    p->draft.gpu = one;
    p->draft.peer = other;
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
    const struct node_gpu *gpu = &p->draft.node->gpus[index];
    uint64_t kept;
    if (__builtin_add_overflow(gpu->reserved_bytes, gpu->context_bytes, &kept) || kept > gpu->memory_bytes)
        return refuse(p, "reserved", "(plus context)", "must leave room within memory for one context");
    for (int other = 0; other < index; other++) {
        const struct node_gpu *one = &p->draft.node->gpus[other];
        if (strcmp(one->uuid, gpu->uuid) == 0)
            return refuse(p, "uuid", gpu->uuid, "give each GPU a uuid of its own");
        if (one->pci_domain == gpu->pci_domain && one->pci_bus == gpu->pci_bus &&
            one->pci_device == gpu->pci_device)
            return refuse(p, "pci", "(twice)", "give each GPU a PCI address of its own");
    }
    return true;
}

static void fill_links(struct parser *p) {
    for (int a = 0; a < p->draft.node->gpu_count; a++)
        for (int b = 0; b < p->draft.node->gpu_count; b++)
            if (!p->draft.linked[a][b])
                p->draft.node->links[a][b].path = a == b ? NODE_PATH_SELF
                                                  : p->draft.node->gpus[a].numa == p->draft.node->gpus[b].numa
                                                      ? NODE_PATH_NODE
                                                      : NODE_PATH_SYS;
}

static bool check(struct parser *p) {
    while (p->draft.node->gpu_count < NODE_MAX_GPUS && p->described[p->draft.node->gpu_count])
        p->draft.node->gpu_count++;
    if (!p->draft.node->gpu_count)
        return refuse(p, "section", "(none)", "describe at least [gpu 0]");
    for (int i = p->draft.node->gpu_count; i < NODE_MAX_GPUS; i++) {
        char section[16];
        snprintf(section, sizeof section, "[gpu %d]", i);
        if (p->described[i])
            return refuse(p, "section", section, "number the GPUs from 0 without gaps");
    }
    for (int i = 0; i < p->draft.node->gpu_count; i++)
        if (!check_gpu(p, i))
            return false;
    fill_links(p);
    struct node_fault fault = {0};
    return node_place_instances(p->draft.node, &p->draft.mig, &fault) ||
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
    struct parser parser = {.draft.node = node, .message = message};
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
