/* The images of modules and libraries: their length, and the kernels that PTX text declares. */
#ifndef PLIMSOLL_EMULATOR_MODULE_IMAGE_H
#define PLIMSOLL_EMULATOR_MODULE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

/* The image's length; at least 1. */
size_t module_image_bytes(const void *image);
bool module_ptx_has(const char *ptx, const char *name);
/* Copies an image that is PTX text; NULL for any other. */
char *module_ptx_of(const void *image);
/* Reads a whole file, zero-terminated; NULL if the file cannot be read. */
char *module_read_file(const char *path);

#endif
