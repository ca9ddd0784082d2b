/* The kinds of values in a node file. */
#ifndef PLIMSOLL_EMULATOR_NODE_VALUE_H
#define PLIMSOLL_EMULATOR_NODE_VALUE_H

#include <stddef.h>

#include "book/node.h"

/* Digits at the start of `text`; *rest is what follows them. */
bool node_parse_u64(const char *text, uint64_t *value, const char **rest);
bool node_parse_count(const char *text, uint64_t most, unsigned *value);
/* 24Gi, 512Mi, 1205M or plain bytes. */
bool node_parse_bytes(const char *text, uint64_t *value);
/* 50us to 10s, in nanoseconds. */
bool node_parse_time(const char *text, uint64_t *value);
/* Microseconds up to 10000 without their unit, a fraction allowed, in nanoseconds. */
bool node_parse_us(const char *text, uint64_t *value);
/* 0-15,32-47 as one bit each. */
bool node_parse_cpus(const char *text, uint64_t cpus[NODE_MAX_CPUS / 64]);
bool node_valid_uuid(const char *text);
/* False where `text` is empty or does not fit. */
bool node_copy_text(char *target, size_t size, const char *text);

#endif
