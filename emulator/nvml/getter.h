/* Defines functions that return one value of a GPU, in a row each. */
#ifndef PLIMSOLL_EMULATOR_NVML_GETTER_H
#define PLIMSOLL_EMULATOR_NVML_GETTER_H

#include "nvml/session.h"

/* A function that fails for a lost GPU. `value` may use `gpu`, the GPU's index. */
#define GETTER(function, type, value)                                                                        \
    nvmlReturn_t function(nvmlDevice_t device, type *output) {                                               \
        int gpu;                                                                                             \
        nvmlReturn_t found = nvml_find_present_gpu(device, output, &gpu);                                    \
        if (found == NVML_SUCCESS)                                                                           \
            *output = value;                                                                                 \
        return found;                                                                                        \
    }

/* A function that answers for a lost GPU too. `value` may use `gpu`, the GPU's description. */
#define CONSTANT(function, type, value)                                                                      \
    nvmlReturn_t function(nvmlDevice_t device, type *output) {                                               \
        const struct node_gpu *gpu;                                                                          \
        nvmlReturn_t found = nvml_find_description(device, output, &gpu);                                    \
        if (found == NVML_SUCCESS)                                                                           \
            *output = value;                                                                                 \
        return found;                                                                                        \
    }

/* The same for a text, of a MIG instance too. */
#define TEXT(function, value)                                                                                \
    nvmlReturn_t function(nvmlDevice_t device, char *text, unsigned length) {                                \
        const struct node_gpu *gpu;                                                                          \
        nvmlReturn_t found = nvml_find_place_description(device, text, &gpu);                                \
        return found == NVML_SUCCESS ? nvml_give_text(value, text, length) : found;                          \
    }

#endif
