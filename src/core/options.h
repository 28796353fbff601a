/* SPDX-License-Identifier: Apache-2.0 */
/* The options of one world: environment first, then the caller's overrides. */
#ifndef FERRY_OPTIONS_H
#define FERRY_OPTIONS_H

#include <ferry/base.h>

enum { FERRY_OPTION_BYTES = 256 };

struct ferry_ctx;

/* One field per line of env.def. */
struct ferry_options {
#define FERRY_FIELD_INT(field)            int64_t field;
#define FERRY_FIELD_COUNT(field)          int64_t field;
#define FERRY_FIELD_MS(field)             int64_t field;
#define FERRY_FIELD_STRING(field)         char field[FERRY_OPTION_BYTES];
#define FERRY_FIELD_CHOICE(field)         char field[FERRY_OPTION_BYTES];
#define X(field, name, type, value, help) FERRY_FIELD_##type(field)
#include "env.def"
#undef X
};

/*
 * Fills *opt from the defaults, the environment and `overrides` (see
 * ferry_world_config.options; may be NULL). An empty value stands for the
 * default. A bad value or an unknown override is INVAL.
 */
enum ferry_status ferry_options_read(struct ferry_ctx *ctx,
                                     const char *overrides,
                                     struct ferry_options *opt);

/* Warns about every FERRY_ variable that is not known, with the nearest. */
void ferry_env_check(struct ferry_ctx *ctx);

#endif
