/* The kinds of values in a node file. */
#ifndef PLIMSOLL_EMULATOR_NODE_VALUE_H
#define PLIMSOLL_EMULATOR_NODE_VALUE_H

#include <stddef.h>

#include "book/node/node.h"

/* Parses digits at the start of `text`; *rest points to the text after them. */
bool node_parse_u64(const char *text, uint64_t *value, const char **rest);
bool node_parse_count(const char *text, uint64_t most, unsigned *value);
/* Parses 24Gi, 512Mi, 1205M or plain bytes. */
bool node_parse_bytes(const char *text, uint64_t *value);
/* Parses 50us to 10s into nanoseconds. */
bool node_parse_time(const char *text, uint64_t *value);
/* Parses a number of microseconds up to 10000, without a unit and with an optional fraction, into
 * nanoseconds. */
bool node_parse_us(const char *text, uint64_t *value);
/* Parses a list such as 0-15,32-47 into one bit per CPU. */
bool node_parse_cpus(const char *text, uint64_t cpus[NODE_MAX_CPUS / 64]);
/* `prefix`, such as GPU-, and a lower-case UUID. */
bool node_valid_uuid(const char *text, const char *prefix);
/* Copies `text`. False if the text is empty or does not fit. */
bool node_copy_text(char *target, size_t size, const char *text);

#endif
