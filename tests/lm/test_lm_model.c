/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: every weight where it belongs, whatever type and files. */
#include <string.h>

#include "cli/cli_cmocka.h"
#include "support/test_seed.h"
#include "tiny_model.h"

static uint64_t seed;

/* A tensor of the file against the model's matrix. */
static void check_matrix(const struct tiny_shape *s, int32_t *index,
                         const struct lm_matrix *m)
{
	const struct tiny_tensor t = tiny_model_tensor(s, (*index)++);
	const int64_t n = (int64_t)m->rows * m->cols;

	assert_int_equal(m->type, s->type);
	assert_int_equal(m->cols, t.dims[t.n_dims - 1]);
	assert_int_equal(m->rows, t.n_dims == 2 ? t.dims[0] : 1);
	for (int64_t i = 0; i < n; i++)
		if (lm_element(m, i) != tiny_model_value(s, &t, i))
			fail_msg("%s[%lld] is %g, expected %g", t.name,
			         (long long)i, (double)lm_element(m, i),
			         (double)tiny_model_value(s, &t, i));
}

static void check_layer(const struct tiny_shape *s, int32_t *index,
                        const struct lm_layer *layer)
{
	check_matrix(s, index, &layer->attention_norm);
	check_matrix(s, index, &layer->q);
	check_matrix(s, index, &layer->k);
	check_matrix(s, index, &layer->v);
	check_matrix(s, index, &layer->o);
	check_matrix(s, index, &layer->q_norm);
	check_matrix(s, index, &layer->k_norm);
	check_matrix(s, index, &layer->moe_norm);
	check_matrix(s, index, &layer->router);
	for (int32_t e = 0; e < s->n_experts; e++)
		for (int t = 0; t < LM_EXPERT_TENSORS; t++)
			check_matrix(s, index, &layer->experts[e][t]);
}

static void check_model(const struct tiny_shape *s)
{
	char *const directory = tiny_model_make(s);
	struct lm_model model;
	struct fault fault;
	int32_t index = 0;

	if (!lm_model_open(directory, &model, &fault))
		fail_msg("%s", fault.text);
	check_matrix(s, &index, &model.embedding);
	for (int32_t l = 0; l < s->n_layers; l++)
		check_layer(s, &index, &model.layers[l]);
	check_matrix(s, &index, &model.norm);
	if (s->tied)
		assert_ptr_equal(model.head.data, model.embedding.data);
	else
		check_matrix(s, &index, &model.head);
	assert_int_equal(index, tiny_model_n_tensors(s));
	assert_int_equal(model.expert_type, s->type);
	lm_model_close(&model);
	tiny_model_remove(directory);
}

static void test_types(void **state)
{
	struct tiny_shape s = TINY_SHAPE_INIT;

	(void)state;
	s.seed = seed;
	for (int type = 0; type < LM_N_TYPES; type++) {
		s.type = (enum lm_type)type;
		check_model(&s);
	}
}

static void test_untied(void **state)
{
	struct tiny_shape s = TINY_SHAPE_INIT;

	(void)state;
	s.seed = seed;
	s.tied = false;
	s.n_heads = 6;
	s.n_kv_heads = 3;
	s.head_dim = 10;
	check_model(&s);
}

static void test_shards(void **state)
{
	struct tiny_shape s = TINY_SHAPE_INIT;

	(void)state;
	s.seed = seed;
	for (s.n_shards = 2; s.n_shards <= 5; s.n_shards++)
		check_model(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_untied),
		cmocka_unit_test(test_shards),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
