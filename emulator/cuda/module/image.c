#include "cuda/module/image.h"

#include <ctype.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FATBIN_MAGIC 0xBA55ED50u
#define FATBIN_WRAPPER_MAGIC 0x466243B1u

/* The layout of nvcc (fatbinary_section.h of the toolkit). */
struct fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
};

struct fatbin_wrapper {
    uint32_t magic, version;
    const void *image;
    void *unused;
};

static bool is_text(const char *image) {
    for (int i = 0; i < 4; i++)
        if (!isprint((unsigned char)image[i]) && !isspace((unsigned char)image[i]))
            return false;
    return strstr(image, ".version") != NULL;
}

static size_t elf_bytes(const void *image) {
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    return head.e_shoff + (size_t)head.e_shentsize * head.e_shnum;
}

size_t module_image_bytes(const void *image) {
    uint32_t magic;
    struct fatbin_wrapper wrapper;
    struct fatbin fatbin;
    if (is_text(image))
        return strlen(image);
    memcpy(&magic, image, sizeof magic);
    if (memcmp(image, ELFMAG, SELFMAG) == 0)
        return elf_bytes(image);
    if (magic == FATBIN_WRAPPER_MAGIC) {
        memcpy(&wrapper, image, sizeof wrapper);
        return module_image_bytes(wrapper.image);
    }
    if (magic != FATBIN_MAGIC)
        return 1; /* not a compiler's output */
    memcpy(&fatbin, image, sizeof fatbin);
    return fatbin.header_bytes + fatbin.bytes;
}

char *module_ptx_of(const void *image) {
    return is_text(image) ? strdup(image) : NULL;
}

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

bool module_ptx_has(const char *ptx, const char *name) {
    size_t length = strlen(name);
    for (const char *entry = strstr(ptx, ".entry"); entry; entry = strstr(entry, ".entry")) {
        entry += strlen(".entry");
        entry += strspn(entry, " \t\r\n");
        if (strncmp(entry, name, length) == 0 && !is_word(entry[length]))
            return true;
    }
    return false;
}

char *module_read_file(const char *path) {
    FILE *file = fopen(path, "re");
    if (!file)
        return NULL;
    size_t length = 0, room = 1 << 16;
    char *text = malloc(room);
    while (text && !feof(file) && !ferror(file)) {
        length += fread(text + length, 1, room - 1 - length, file);
        if (length + 1 == room) {
            char *longer = realloc(text, room *= 2);
            if (!longer)
                free(text);
            text = longer;
        }
    }
    if (text)
        text[length] = '\0';
    fclose(file);
    return text;
}
