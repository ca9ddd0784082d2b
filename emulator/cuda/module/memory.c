/* What modules cost: the size of their image, in whole pieces of the node file's `module`, charged to the
 * card when a function is first launched, or at once with CUDA_MODULE_LOADING=EAGER. */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/context/context.h"
#include "cuda/memory/memory.h"
#include "cuda/module/module.h"

#define FATBIN_MAGIC 0xBA55ED50u
#define FATBIN_WRAPPER_MAGIC 0x466243B1u

/* As nvcc lays them out (fatbinary_section.h of the toolkit). */
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

static size_t elf_bytes(const void *image) {
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    return head.e_shoff + (size_t)head.e_shentsize * head.e_shnum;
}

size_t module_image_bytes(const void *image) {
    uint32_t magic;
    struct fatbin_wrapper wrapper;
    struct fatbin fatbin;
    if (module_is_text(image))
        return strlen(image);
    memcpy(&magic, image, sizeof magic);
    if (memcmp(image, ELFMAG, SELFMAG) == 0)
        return elf_bytes(image);
    if (magic == FATBIN_WRAPPER_MAGIC) {
        memcpy(&wrapper, image, sizeof wrapper);
        return module_image_bytes(wrapper.image);
    }
    if (magic != FATBIN_MAGIC)
        return 1; /* nothing that a compiler made */
    memcpy(&fatbin, image, sizeof fatbin);
    return fatbin.header_bytes + fatbin.bytes;
}

bool module_is_lazy(void) {
    const char *mode = getenv("CUDA_MODULE_LOADING");
    return !mode || strcmp(mode, "EAGER") != 0;
}

bool module_require(CUmodule module) {
    CUcontext context = module->context;
    size_t piece = driver.book.node.gpus[context->gpu].module_bytes;
    size_t bytes = piece ? memory_round_up(module->image_bytes, piece) : 0;
    if (module->is_loaded)
        return true;
    if (bytes && !book_charge(&driver.book, context->gpu, bytes))
        return false;
    book_note(&driver.book, context->gpu, BOOK_MODULES, (int64_t)bytes);
    module->charged_bytes = bytes;
    module->is_loaded = true;
    return true;
}

void module_refund(CUmodule module) {
    book_refund(&driver.book, module->context->gpu, module->charged_bytes);
    book_note(&driver.book, module->context->gpu, BOOK_MODULES, -(int64_t)module->charged_bytes);
}
