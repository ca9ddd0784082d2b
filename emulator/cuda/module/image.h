/* The images of modules and libraries: how long they are, and which kernels PTX text declares. */
#ifndef PLIMSOLL_EMULATOR_MODULE_IMAGE_H
#define PLIMSOLL_EMULATOR_MODULE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

/* At least 1. */
size_t module_image_bytes(const void *image);
bool module_is_text(const char *image);
bool module_ptx_has(const char *ptx, const char *name);
/* A copy of an image if it is PTX text; NULL otherwise. */
char *module_ptx_of(const void *image);
/* A whole file, zero-terminated; NULL where it cannot be read. */
char *module_read_file(const char *path);

#endif
