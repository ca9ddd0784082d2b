/* Queries about the whole system: versions, names of processes, texts of errors. */
#include "nvml/session.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The texts are those of the real library, because programs and people search logs for them. */
static const char *const error_texts[] = {
    [NVML_SUCCESS] = "Success",
    [NVML_ERROR_UNINITIALIZED] = "Uninitialized",
    [NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
    [NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
    [NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
    [NVML_ERROR_ALREADY_INITIALIZED] = "Already Initialized",
    [NVML_ERROR_NOT_FOUND] = "Not Found",
    [NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
    [NVML_ERROR_INSUFFICIENT_POWER] = "Insufficient External Power",
    [NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
    [NVML_ERROR_TIMEOUT] = "Timeout",
    [NVML_ERROR_IRQ_ISSUE] = "Interrupt Request Issue",
    [NVML_ERROR_LIBRARY_NOT_FOUND] = "NVML Shared Library Not Found",
    [NVML_ERROR_FUNCTION_NOT_FOUND] = "Function Not Found",
    [NVML_ERROR_CORRUPTED_INFOROM] = "Corrupted infoROM",
    [NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
    [NVML_ERROR_RESET_REQUIRED] = "GPU requires restart",
    [NVML_ERROR_OPERATING_SYSTEM] = "The operating system has blocked the request.",
    [NVML_ERROR_LIB_RM_VERSION_MISMATCH] = "RM has detected an NVML/RM version mismatch.",
    [NVML_ERROR_IN_USE] = "In use by another client",
    [NVML_ERROR_MEMORY] = "Insufficient Memory",
    [NVML_ERROR_NO_DATA] = "No data",
    [NVML_ERROR_VGPU_ECC_NOT_SUPPORTED] = "The requested vgpu operation is not available with ECC enabled",
    [NVML_ERROR_INSUFFICIENT_RESOURCES] = "Insufficient Resources",
    [NVML_ERROR_FREQ_NOT_SUPPORTED] = "Frequency Not Supported",
    [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Argument Version Mismatch",
    [NVML_ERROR_DEPRECATED] = "Deprecated",
    [NVML_ERROR_NOT_READY] = "Not Ready",
    [NVML_ERROR_GPU_NOT_FOUND] = "GPU Not Found",
    [NVML_ERROR_INVALID_STATE] = "Invalid State",
};

const char *nvmlErrorString(nvmlReturn_t result) {
    size_t known = sizeof error_texts / sizeof error_texts[0];
    return (size_t)result < known ? error_texts[result] : "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    if (!nvml_is_initialized())
        return NVML_ERROR_UNINITIALIZED;
    return nvml_give_text(nvml_node()->driver, version, length);
}

/* Joins the CUDA major version and the driver's version: 12.570.124.06. */
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    char text[NODE_DRIVER_BYTES + 16];
    if (!nvml_is_initialized())
        return NVML_ERROR_UNINITIALIZED;
    snprintf(text, sizeof text, "%d.%s", nvml_node()->cuda_version / 1000, nvml_node()->driver);
    return nvml_give_text(text, version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    if (!nvml_is_initialized())
        return NVML_ERROR_UNINITIALIZED;
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = nvml_node()->cuda_version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* Reads the start of a file of /proc, ended by a zero. False if the file is missing or empty. */
static bool read_proc(unsigned pid, const char *file, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/%s", pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, size - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length > 0 && *text;
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    char text[1024];
    if (!nvml_is_initialized())
        return NVML_ERROR_UNINITIALIZED;
    if (!name || !length)
        return NVML_ERROR_INVALID_ARGUMENT;
    /* Between its last thread's end and its reaping, a process has a comm but no command line. */
    if (!read_proc(pid, "cmdline", text, sizeof text) && !read_proc(pid, "comm", text, sizeof text))
        return NVML_ERROR_NOT_FOUND;
    text[strcspn(text, "\n")] = '\0';
    snprintf(name, length, "%s", text); /* truncated, as NVML documents */
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned *count, nvmlDevice_t *devices) {
    unsigned found = 0;
    if (!nvml_is_initialized())
        return NVML_ERROR_UNINITIALIZED;
    if (cpu >= NODE_MAX_CPUS || !count || (*count && !devices))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int shown = 0; shown < nvml_node()->shown_count; shown++) {
        int i = nvml_node()->shown[shown];
        if (!(nvml_node()->gpus[i].cpus[cpu / 64] >> (cpu % 64) & 1))
            continue;
        if (found < *count)
            devices[found] = nvml_handle_of(i);
        found++;
    }
    *count = *count && found > *count ? *count : found;
    return NVML_SUCCESS;
}
