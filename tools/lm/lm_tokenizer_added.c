/* SPDX-License-Identifier: Apache-2.0 */
/* Added tokens in a text: a trie of their bytes, whose steps are pairs (node,
 * byte). */
#include <stdlib.h>

#include "lm_tokenizer_parts.h"

bool lm_added_open(struct lm_added *added, size_t max_bytes,
                   struct fault *fault)
{
	added->tokens = malloc((max_bytes + 1) * sizeof(*added->tokens));
	if (!added->tokens)
		return fault_set(fault, "no memory for %zu added bytes",
		                 max_bytes);
	added->tokens[0] = -1;
	added->n_nodes = 1;
	return lm_pairs_open(&added->children, max_bytes, fault);
}

void lm_added_close(struct lm_added *added)
{
	free(added->tokens);
	lm_pairs_close(&added->children);
}

bool lm_added_put(struct lm_added *added, struct lm_text bytes, int32_t id)
{
	int32_t node = 0;

	added->begins[(uint8_t)bytes.bytes[0]] = true;
	for (size_t i = 0; i < bytes.n; i++) {
		const uint8_t byte = (uint8_t)bytes.bytes[i];
		const struct lm_pair *const is =
			lm_pairs_find(&added->children, node, byte);

		if (!is) {
			added->tokens[added->n_nodes] = -1;
			lm_pairs_put(&added->children, node, byte, 0,
			             added->n_nodes);
		}
		node = is ? is->id : added->n_nodes++;
	}
	if (added->tokens[node] >= 0)
		return false;
	added->tokens[node] = id;
	return true;
}

/* The longest token that begins at a byte. */
static bool longest(const struct lm_added *added, struct lm_text text,
                    struct lm_added_hit *hit)
{
	int32_t node = 0;

	hit->id = -1;
	for (size_t at = hit->start; at < text.n; at++) {
		const struct lm_pair *const child = lm_pairs_find(
			&added->children, node, (uint8_t)text.bytes[at]);

		if (!child)
			break;
		node = child->id;
		if (added->tokens[node] < 0)
			continue;
		hit->id = added->tokens[node];
		hit->end = at + 1;
	}
	return hit->id >= 0;
}

bool lm_added_find(const struct lm_added *added, struct lm_text text,
                   size_t from, struct lm_added_hit *hit)
{
	for (hit->start = from; hit->start < text.n; hit->start++)
		if (added->begins[(uint8_t)text.bytes[hit->start]] &&
		    longest(added, text, hit))
			return true;
	return false;
}
