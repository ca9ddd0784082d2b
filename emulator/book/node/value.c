/* Reads the values of a node file. Each function accepts a whole value or rejects it. The functions return
 * only true or false, because the parser knows the line and the remedy. */
#include "book/node/value.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool node_parse_u64(const char *text, uint64_t *value, const char **rest) {
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    *rest = end;
    return errno == 0;
}

bool node_parse_count(const char *text, uint64_t most, unsigned *value) {
    const char *rest;
    uint64_t number;
    if (!node_parse_u64(text, &number, &rest) || *rest || number > most)
        return false;
    *value = (unsigned)number;
    return true;
}

static bool parse_scaled(const char *text, const char *const suffixes[], const uint64_t factors[],
                         uint64_t *value) {
    const char *rest;
    if (!node_parse_u64(text, value, &rest))
        return false;
    for (int i = 0; suffixes[i]; i++)
        if (strcmp(rest, suffixes[i]) == 0)
            return !__builtin_mul_overflow(*value, factors[i], value);
    return false;
}

bool node_parse_bytes(const char *text, uint64_t *value) {
    static const char *const suffixes[] = {"", "Ki", "Mi", "Gi", "Ti", "k", "M", "G", NULL};
    static const uint64_t factors[] = {1,          1u << 10, 1u << 20, 1u << 30,
                                       1ull << 40, 1000,     1000000,  1000000000};
    return parse_scaled(text, suffixes, factors, value);
}

bool node_parse_time(const char *text, uint64_t *value) {
    static const char *const suffixes[] = {"us", "ms", "s", NULL};
    static const uint64_t factors[] = {1000, 1000000, 1000000000};
    return parse_scaled(text, suffixes, factors, value) && *value >= 50000 && *value <= 10000000000ull;
}

bool node_parse_us(const char *text, uint64_t *value) {
    const char *rest;
    if (!node_parse_u64(text, value, &rest) || *value > 10000)
        return false;
    bool has_fraction = *rest == '.' && isdigit((unsigned char)rest[1]);
    rest += has_fraction;
    for (int place = 0; place < 3; place++)
        *value =
            *value * 10 + (has_fraction && isdigit((unsigned char)*rest) ? (uint64_t)(*rest++ - '0') : 0);
    return !*rest;
}

bool node_copy_text(char *target, size_t size, const char *text) {
    if (!*text || strlen(text) >= size)
        return false;
    memcpy(target, text, strlen(text) + 1);
    return true;
}

bool node_valid_uuid(const char *text, const char *prefix) {
    static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    if (strncmp(text, prefix, strlen(prefix)) != 0 || strlen(text += strlen(prefix)) != sizeof form - 1)
        return false;
    for (size_t i = 0; form[i]; i++) {
        bool hex = isdigit((unsigned char)text[i]) || (text[i] >= 'a' && text[i] <= 'f');
        if (form[i] == 'x' ? !hex : text[i] != form[i])
            return false;
    }
    return true;
}

bool node_parse_cpus(const char *text, uint64_t cpus[NODE_MAX_CPUS / 64]) {
    memset(cpus, 0, NODE_MAX_CPUS / 8);
    while (true) {
        uint64_t first, last;
        if (!node_parse_u64(text, &first, &text))
            return false;
        last = first;
        if (*text == '-' && !node_parse_u64(text + 1, &last, &text))
            return false;
        if (last < first || last >= NODE_MAX_CPUS)
            return false;
        for (uint64_t cpu = first; cpu <= last; cpu++)
            cpus[cpu / 64] |= 1ull << (cpu % 64);
        if (!*text)
            return true;
        if (*text++ != ',')
            return false;
    }
}
