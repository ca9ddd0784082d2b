/* An MPS server, as nvidia-cuda-mps-control starts one. Processes of the same CUDA_MPS_PIPE_DIRECTORY that
 * begin to use CUDA from now on are its clients. Prints a line once it serves, and runs until it is killed.
 */
#include <stdio.h>
#include <unistd.h>

#include "book/book.h"
#include "book/mps.h"

static const uint64_t CONTEXT_BYTES = 28ull
                                      << 20; /* as nvidia-smi shows for the server of a data-centre card */

/* The server has a context on each card outside of MIG mode. */
static bool make_contexts(struct book *book) {
    for (int gpu = 0; gpu < book->node.gpu_count; gpu++) {
        if (book->node.gpus[gpu].is_mig)
            continue;
        if (!book_charge(book, gpu, CONTEXT_BYTES))
            return false;
        book_count_context(book, gpu, 1);
    }
    return true;
}

int main(void) {
    static struct book book;
    char message[NODE_MESSAGE_BYTES];
    if (!book_open(&book, message) || !book_join(&book, message)) {
        fprintf(stderr, "plimsoll emulator: %s\n", message);
        return 2;
    }
    if (!make_contexts(&book) || !book_serve_mps(&book)) {
        fprintf(stderr,
                "plimsoll emulator: CUDA_MPS_PIPE_DIRECTORY: make the directory, and room on each GPU\n");
        return 2;
    }
    puts("serving");
    fflush(stdout);
    while (true)
        pause();
}
