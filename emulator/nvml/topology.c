/* The paths between GPUs and to the CPUs: common ancestors, peer access, NVLink, affinity.
 *
 * The node file's [link] sections and each GPU's `numa` and `cpus` define all of them. Links are numbered
 * per GPU: first those to the first peer, then those to the next. */
#include "nvml/session.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* The NVLink version by GPU architecture, from the compute capability's major number. */
static unsigned nvlink_version(const struct node_gpu *gpu) {
    static const unsigned versions[] = {
        [6] = NVML_NVLINK_VERSION_1_0, [7] = NVML_NVLINK_VERSION_2_0,  [8] = NVML_NVLINK_VERSION_3_0,
        [9] = NVML_NVLINK_VERSION_4_0, [10] = NVML_NVLINK_VERSION_5_0,
    };
    return gpu->compute_major < 10 ? versions[gpu->compute_major] : NVML_NVLINK_VERSION_5_0;
}

static nvmlReturn_t find_pair(nvmlDevice_t one, nvmlDevice_t other, const void *output, int *a, int *b) {
    nvmlReturn_t found = nvml_find_gpu(one, output, a);
    return found == NVML_SUCCESS ? nvml_find_gpu(other, output, b) : found;
}

static nvmlGpuTopologyLevel_t level_between(int a, int b) {
    static const nvmlGpuTopologyLevel_t levels[] = {
        [NODE_PATH_SELF] = NVML_TOPOLOGY_INTERNAL, [NODE_PATH_PIX] = NVML_TOPOLOGY_SINGLE,
        [NODE_PATH_PXB] = NVML_TOPOLOGY_MULTIPLE,  [NODE_PATH_PHB] = NVML_TOPOLOGY_HOSTBRIDGE,
        [NODE_PATH_NODE] = NVML_TOPOLOGY_NODE,     [NODE_PATH_SYS] = NVML_TOPOLOGY_SYSTEM,
    };
    return levels[nvml_node()->links[a][b].path];
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other,
                                                 nvmlGpuTopologyLevel_t *level) {
    int a, b;
    nvmlReturn_t found = find_pair(one, other, level, &a, &b);
    if (found == NVML_SUCCESS)
        *level = level_between(a, b);
    return found;
}

/* "Nearest" means within the given level: GPUs on nearer levels count too. */
nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                              unsigned *count, nvmlDevice_t *devices) {
    unsigned near = 0;
    int gpu;
    nvmlReturn_t found = nvml_find_gpu(device, count, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (level > NVML_TOPOLOGY_SYSTEM || (*count && !devices))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int shown = 0; shown < nvml_node()->shown_count; shown++) {
        int peer = nvml_node()->shown[shown];
        if (peer == gpu || level_between(gpu, peer) > level)
            continue;
        if (near < *count)
            devices[near] = nvml_handle_of(peer);
        near++;
    }
    *count = *count && near > *count ? *count : near;
    return NVML_SUCCESS;
}

/* Peer access works over NVLink, and over PCIe where no CPU interconnect lies between. */
static nvmlGpuP2PStatus_t peer_status(int a, int b, nvmlGpuP2PCapsIndex_t capability) {
    const struct node_link *link = &nvml_node()->links[a][b];
    bool by_pcie = link->path < NODE_PATH_SYS;
    switch (capability) {
    case NVML_P2P_CAPS_INDEX_NVLINK:
    case NVML_P2P_CAPS_INDEX_ATOMICS:
        return link->nvlink_count ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    case NVML_P2P_CAPS_INDEX_PCI:
        return by_pcie ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED;
    default:
        return link->nvlink_count || by_pcie ? NVML_P2P_STATUS_OK
                                             : NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED;
    }
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t capability,
                                    nvmlGpuP2PStatus_t *status) {
    int a, b;
    nvmlReturn_t found = find_pair(one, other, status, &a, &b);
    if (found != NVML_SUCCESS)
        return found;
    if (a == b || capability >= NVML_P2P_CAPS_INDEX_UNKNOWN)
        return NVML_ERROR_INVALID_ARGUMENT;
    *status = peer_status(a, b, capability);
    return NVML_SUCCESS;
}

/* The GPU at the far end of a link; -1 if the GPU does not have the link. */
static int peer_of_link(int gpu, unsigned link) {
    for (int peer = 0; peer < nvml_node()->gpu_count; peer++) {
        unsigned count = nvml_node()->links[gpu][peer].nvlink_count;
        if (link < count)
            return peer;
        link -= count;
    }
    return -1;
}

/* Finds a link's peer; -1 for a link that exists and leads nowhere. INVALID_ARGUMENT past the last link
 * that NVML defines; NOT_SUPPORTED on a GPU without NVLink, as in the driver. */
static nvmlReturn_t find_link(nvmlDevice_t device, unsigned link, const void *output, int *peer) {
    int gpu;
    nvmlReturn_t found = nvml_find_gpu(device, output, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (link >= NVML_NVLINK_MAX_LINKS)
        return NVML_ERROR_INVALID_ARGUMENT;
    *peer = peer_of_link(gpu, link);
    return peer_of_link(gpu, 0) < 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, nvmlEnableState_t *active) {
    int peer;
    nvmlReturn_t found = find_link(device, link, active, &peer);
    if (found == NVML_SUCCESS)
        *active = peer < 0 ? NVML_FEATURE_DISABLED : NVML_FEATURE_ENABLED;
    return found;
}

static nvmlReturn_t find_active_link(nvmlDevice_t device, unsigned link, const void *output, int *peer) {
    nvmlReturn_t found = find_link(device, link, output, peer);
    return found == NVML_SUCCESS && *peer < 0 ? NVML_ERROR_NOT_SUPPORTED : found;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned link, unsigned *version) {
    int peer;
    nvmlReturn_t found = find_active_link(device, link, version, &peer);
    if (found == NVML_SUCCESS)
        *version = nvlink_version(&nvml_node()->gpus[peer]);
    return found;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned link,
                                           nvmlNvLinkCapability_t capability, unsigned *result) {
    int peer;
    nvmlReturn_t found = find_active_link(device, link, result, &peer);
    if (found != NVML_SUCCESS)
        return found;
    if (capability >= NVML_NVLINK_CAP_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    *result = capability == NVML_NVLINK_CAP_P2P_SUPPORTED || capability == NVML_NVLINK_CAP_P2P_ATOMICS ||
              capability == NVML_NVLINK_CAP_VALID;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci) {
    int peer;
    nvmlReturn_t found = find_active_link(device, link, pci, &peer);
    if (found == NVML_SUCCESS)
        nvml_fill_pci(&nvml_node()->gpus[peer], pci);
    return found;
}

/* The first version's struct ended before busId. */
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci) {
    nvmlPciInfo_t whole;
    nvmlReturn_t found = nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci ? &whole : NULL);
    if (found == NVML_SUCCESS)
        memcpy(pci, &whole, offsetof(nvmlPciInfo_t, busId));
    return found;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link,
                                                 nvmlIntNvLinkDeviceType_t *type) {
    int peer;
    nvmlReturn_t found = find_active_link(device, link, type, &peer);
    if (found == NVML_SUCCESS)
        *type = NVML_NVLINK_DEVICE_TYPE_GPU;
    return found;
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned link,
                                             nvmlNvLinkErrorCounter_t counter, unsigned long long *value) {
    int peer;
    nvmlReturn_t found = find_active_link(device, link, value, &peer);
    if (found != NVML_SUCCESS)
        return found;
    if (counter >= NVML_NVLINK_ERROR_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    *value = 0;
    return NVML_SUCCESS;
}

enum { MASK_BITS = sizeof(unsigned long) * CHAR_BIT };

/* A GPU without `cpus` in the node file is near every CPU. */
static bool is_near(const struct node_gpu *gpu, unsigned cpu, unsigned cpu_count) {
    bool has_cpus = false;
    for (size_t i = 0; i < NODE_MAX_CPUS / 64; i++)
        has_cpus |= gpu->cpus[i] != UINT64_MAX;
    return has_cpus ? gpu->cpus[cpu / 64] >> (cpu % 64) & 1 : cpu < cpu_count;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned size, unsigned long *cpus) {
    const struct node_gpu *gpu;
    nvmlReturn_t found = nvml_find_description(device, size ? cpus : NULL, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    unsigned cpu_count = (unsigned)sysconf(_SC_NPROCESSORS_CONF);
    memset(cpus, 0, size * sizeof *cpus);
    for (unsigned cpu = 0; cpu < NODE_MAX_CPUS && cpu / MASK_BITS < size; cpu++)
        if (is_near(gpu, cpu, cpu_count))
            cpus[cpu / MASK_BITS] |= 1ul << (cpu % MASK_BITS);
    return NVML_SUCCESS;
}

/* Nodes and sockets are the same thing in a node file. */
nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned size, unsigned long *cpus,
                                                 nvmlAffinityScope_t scope) {
    if (nvml_is_initialized() && scope > NVML_AFFINITY_SCOPE_SOCKET)
        return NVML_ERROR_INVALID_ARGUMENT;
    return nvmlDeviceGetCpuAffinity(device, size, cpus);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned size, unsigned long *nodes,
                                         nvmlAffinityScope_t scope) {
    const struct node_gpu *gpu;
    nvmlReturn_t found = nvml_find_description(device, size ? nodes : NULL, &gpu);
    if (found != NVML_SUCCESS)
        return found;
    if (scope > NVML_AFFINITY_SCOPE_SOCKET)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(nodes, 0, size * sizeof *nodes);
    unsigned node = gpu->numa < 0 ? 0 : (unsigned)gpu->numa;
    if (node / MASK_BITS < size)
        nodes[node / MASK_BITS] = 1ul << (node % MASK_BITS);
    return NVML_SUCCESS;
}
