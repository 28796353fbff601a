/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that write small checkpoints share. */
#ifndef TINY_INNER_H
#define TINY_INNER_H

#include <stddef.h>

struct cJSON;

/* Memory, or the end of the program. */
void *tiny_alloc(size_t n);
void *tiny_grow(void *memory, size_t n);

/* The text of a JSON, which is freed; the caller frees the text. */
char *tiny_print(struct cJSON *json);

/* tokenizer.json as Qwen3 has it: bytes, merges, then <|endoftext|>. */
void tiny_tokenizer_write(const char *directory);

#endif
