#include "tools/busy/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const path_names[] = {"alloc", "pitch", "managed", "async", "create", NULL};

struct options options = {.steps = 1, .repeat = 1};

static bool parse_bytes(const char *text, uint64_t *value) {
    static const struct {
        const char *suffix;
        uint64_t factor;
    } units[] = {{"", 1},     {"Ki", 1 << 10}, {"Mi", 1 << 20},  {"Gi", 1 << 30},
                 {"k", 1000}, {"M", 1000000},  {"G", 1000000000}};
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof units[0] && *text >= '0' && *text <= '9' && !errno; i++)
        if (strcmp(end, units[i].suffix) == 0)
            return !__builtin_mul_overflow(*value, units[i].factor, value);
    return false;
}

/* A number with an optional fraction, times `scale`. */
static bool parse_scaled(const char *text, double scale, uint64_t *value) {
    char *end;
    double number = strtod(text, &end);
    *value = (uint64_t)(number * scale);
    return end != text && !*end && number >= 0 && number * scale < 1e15;
}

static bool parse_unsigned(const char *text, unsigned least, unsigned most, unsigned *value) {
    uint64_t number;
    if (!parse_scaled(text, 1, &number) || number < least || number > most)
        return false;
    *value = (unsigned)number;
    return true;
}

static bool parse_path(const char *text) {
    for (int i = 0; path_names[i]; i++) {
        if (strcmp(text, path_names[i]) == 0) {
            options.path = (enum path)i;
            return true;
        }
    }
    return false;
}

static bool set_option(const char *name, const char *value) {
    unsigned device;
    if (strcmp(name, "--memory") == 0)
        return parse_bytes(value, &options.memory_bytes);
    if (strcmp(name, "--steps") == 0)
        return parse_unsigned(value, 1, MAX_STEPS, &options.steps);
    if (strcmp(name, "--step-ms") == 0)
        return parse_scaled(value, 1, &options.step_ms);
    if (strcmp(name, "--kernel-ms") == 0)
        return parse_scaled(value, 1000, &options.kernel_us);
    if (strcmp(name, "--gap-ms") == 0)
        return parse_scaled(value, 1000, &options.gap_us);
    if (strcmp(name, "--seconds") == 0)
        return parse_scaled(value, 1000, &options.seconds_ms);
    if (strcmp(name, "--iterations") == 0)
        return parse_scaled(value, 1, &options.iterations);
    if (strcmp(name, "--hold-seconds") == 0)
        return parse_scaled(value, 1000, &options.hold_ms);
    if (strcmp(name, "--repeat") == 0)
        return parse_unsigned(value, 1, 1u << 30, &options.repeat);
    if (strcmp(name, "--rest-ms") == 0)
        return parse_scaled(value, 1, &options.rest_ms);
    if (strcmp(name, "--path") == 0)
        return parse_path(value);
    if (strcmp(name, "--device") != 0 || !parse_unsigned(value, 0, 1024, &device))
        return false;
    options.device = (int)device;
    return true;
}

static bool refuse(const char *option, const char *value) {
    fprintf(
        stderr,
        "busy: bad option %s %s\n"
        "usage: busy [--memory 1205M] [--steps N] [--step-ms MS] [--path alloc|pitch|managed|async|create]\n"
        "            [--kernel-ms MS] [--gap-ms MS] [--seconds S | --iterations N] [--hold-seconds S]\n"
        "            [--repeat N] [--rest-ms MS] [--keep-going] [--device N]\n",
        option, value);
    return false;
}

bool options_read(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--keep-going") == 0) {
            options.keep_going = true;
            continue;
        }
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!set_option(argv[i], value))
            return refuse(argv[i], value);
        i++;
    }
    return true;
}
