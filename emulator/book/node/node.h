/* The description of one emulated node, from its node file. README.md lists every key.
 *
 * Invariants after a successful read: the node has at least one card; indices have no gaps; uuids are
 * distinct, and PCI addresses of cards; reserved_bytes and context_bytes fit in memory_bytes; the instances
 * of a card fit in it; links is symmetric. All from `driver` on is the same in every process of the node.
 *
 * A MIG instance is a GPU of its own, which stands behind the cards in `gpus`: it has its own memory and its
 * own timeline. Programs run on cards outside of MIG mode and on instances, never on a card in MIG mode. */
#ifndef PLIMSOLL_EMULATOR_BOOK_NODE_H
#define PLIMSOLL_EMULATOR_BOOK_NODE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    NODE_MAX_GPUS = 16,     /* cards and MIG instances together */
    NODE_MAX_INSTANCES = 7, /* of one card, as on every card with MIG */
    NODE_MAX_CPUS = 1024,
    NODE_PATH_BYTES = 1024,
    NODE_UUID_BYTES = 48,
    NODE_MODEL_BYTES = 96,
    NODE_PROFILE_BYTES = 16,
    NODE_DRIVER_BYTES = 80,
    NODE_MESSAGE_BYTES = 1536,
};

/* The path between two GPUs, nearest first, in the order of nvmlGpuTopologyLevel_t. */
enum node_path {
    NODE_PATH_SELF,
    NODE_PATH_PIX,  /* one PCIe switch */
    NODE_PATH_PXB,  /* several PCIe switches */
    NODE_PATH_PHB,  /* a PCIe host bridge */
    NODE_PATH_NODE, /* within one NUMA node */
    NODE_PATH_SYS,  /* across NUMA nodes */
};

struct node_link {
    enum node_path path;   /* over PCIe; NODE_PATH_NODE or _SYS where the node file names only NVLink */
    unsigned nvlink_count; /* NV4 → 4; 0 = none */
};

struct node_gpu {
    char uuid[NODE_UUID_BYTES];   /* GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx */
    char model[NODE_MODEL_BYTES]; /* as cuDeviceGetName and nvmlDeviceGetName give it */
    uint64_t memory_bytes;        /* the card's total */
    uint64_t reserved_bytes;      /* bytes that the driver reserves for itself */
    uint64_t context_bytes;       /* bytes that one CUDA context costs */
    bool is_mig;                  /* the card is in MIG mode */
    int card;                     /* the card's place in `gpus`: its own, or that of an instance's card */
    unsigned instance;            /* of a MIG instance, its number on its card */
    unsigned slices;              /* of a MIG instance, its sevenths of the card's processors; 0 = a card */
    char profile[NODE_PROFILE_BYTES]; /* of a MIG instance: 1g.5gb */
    uint64_t module_bytes; /* a module costs its image, rounded up to a multiple of this; 0 = nothing */
    unsigned compute_major, compute_minor;
    unsigned sm_count;
    unsigned pci_domain, pci_bus, pci_device;
    int numa;                          /* NUMA node; -1 = none, as in Linux */
    uint64_t cpus[NODE_MAX_CPUS / 64]; /* CPUs near this GPU, one bit each */
};

struct node_file {
    char path[NODE_PATH_BYTES];
    int shown_count;                /* GPUs that this process sees: all, or those with a device file */
    int shown[NODE_MAX_GPUS];       /* their places in `gpus`, ascending */
    char driver[NODE_DRIVER_BYTES]; /* "570.124.06" */
    int cuda_version;               /* 12080 */
    uint64_t slice_ns;              /* turn of one process while several have work */
    uint64_t sample_ns;             /* spacing of utilisation samples */
    uint64_t copy_bytes_per_s;      /* host to device and back */
    uint64_t event_ns;              /* least duration of a call that records an event; 0 = no minimum */
    uint64_t query_ns;              /* the same for a call that queries an event or a stream */
    uint64_t launch_ns;             /* the same for a call that launches a kernel or a graph */
    bool has_private_addresses;     /* cuGetProcAddress returns other addresses than dlsym */
    int gpu_count;                  /* cards */
    int place_count;                /* cards and MIG instances */
    struct node_gpu gpus[NODE_MAX_GPUS];
    struct node_link links[NODE_MAX_GPUS][NODE_MAX_GPUS];
};

static inline bool node_is_instance(const struct node_gpu *gpu) {
    return gpu->slices > 0;
}

/* NVML's number of a GPU instance. The driver's 0 is an instance that takes the whole card. */
static inline unsigned node_gpu_instance_id(const struct node_gpu *gpu) {
    return gpu->instance + 1;
}

#endif
