/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that users bring. The first byte says which part: config.json, an
 * index, a safetensors file as it is, or one as its header, a byte 0, and the
 * bytes of its tensors, where the length is put before it. Whatever opens can
 * be read to its last element.
 */
#include "fuzz.h"

#include <math.h>
#include <string.h>

#include "lm_files.h"

/* What a file has to have; its numbers are small so that it is, too. */
static const struct lm_config small = {
	.n_layers = 1,
	.hidden = 2,
	.n_heads = 1,
	.n_kv_heads = 1,
	.head_dim = 2,
	.n_experts = 2,
	.topk = 1,
	.expert_hidden = 1,
	.vocab = 2,
	.max_length = 8,
	.norm_eps = 1e-6f,
	.rope_theta = 1e4,
};

static void read_matrix(const struct lm_matrix *m, int64_t *n, double *sum)
{
	const int64_t n_elements = (int64_t)m->rows * m->cols;

	FUZZ_CHECK((uintptr_t)m->data % (size_t)lm_type_bytes(m->type) == 0);
	for (int64_t i = 0; i < n_elements; i++)
		*sum += (double)lm_element(m, i);
	*n += n_elements;
}

static void read_model(const struct lm_model *model)
{
	const struct lm_layer *const l = &model->layers[0];
	const struct lm_matrix all[] = {
		model->embedding,
		model->norm,
		model->head,
		l->attention_norm,
		l->q,
		l->k,
		l->v,
		l->o,
		l->q_norm,
		l->k_norm,
		l->moe_norm,
		l->router,
	};
	volatile double seen; /* so that nothing is left out */
	double sum = 0;
	int64_t n = 0;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		read_matrix(&all[i], &n, &sum);
	for (int32_t e = 0; e < model->config.n_experts; e++)
		for (int t = 0; t < LM_EXPERT_TENSORS; t++) {
			FUZZ_CHECK(l->experts[e][t].type == model->expert_type);
			read_matrix(&l->experts[e][t], &n, &sum);
		}
	seen = sum;
	(void)seen;
	FUZZ_CHECK(n == model->n_parameters);
}

/* Every name is found, and its bytes are in the file. */
static void check_tensors(const struct tensor_file *file)
{
	for (int32_t i = 0; i < file->n_tensors; i++) {
		const struct tensor *const t = &file->tensors[i];

		FUZZ_CHECK(tensor_file_find(file, t->name) == t);
		FUZZ_CHECK(t->bytes >= file->bytes + file->data_at);
		FUZZ_CHECK(t->n_bytes >= 0 &&
		           t->n_bytes <= file->bytes + file->n - t->bytes);
		FUZZ_CHECK(t->n_dims >= 0 && t->n_dims <= TENSOR_MAX_DIMS);
	}
}

static bool read_tensors(const char *bytes, size_t n, struct fault *fault)
{
	struct tensor_file file;
	struct lm_files *files;
	struct lm_model model;

	if (!tensor_file_open("f", bytes, n, &file, fault))
		return false;
	check_tensors(&file);
	tensor_file_close(&file);
	if (!lm_files_of_memory("f", bytes, n, &files, fault))
		return false;
	if (!lm_model_bind(&small, files, &model, fault)) {
		lm_files_close(files);
		return false;
	}
	FUZZ_CHECK(model.file_bytes == (int64_t)n);
	read_model(&model);
	lm_model_close(&model);
	return true;
}

static bool read_header(const char *bytes, size_t n, struct fault *fault)
{
	const char *const end = memchr(bytes, 0, n);
	const uint64_t n_header = end ? (uint64_t)(end - bytes) : n;
	const size_t n_data = n - (size_t)n_header - !!end;
	char *const file = malloc(8 + (size_t)n_header + n_data);

	FUZZ_CHECK(file);
	memcpy(file, &n_header, 8);
	memcpy(file + 8, bytes, (size_t)n_header);
	memcpy(file + 8 + n_header, bytes + n - n_data, n_data);
	const bool good =
		read_tensors(file, 8 + (size_t)n_header + n_data, fault);

	free(file);
	return good;
}

static bool read_config(const char *text, size_t n, struct fault *fault)
{
	struct lm_config c;

	if (!lm_config_parse("f", text, (int64_t)n, &c, fault))
		return false;
	FUZZ_CHECK(c.n_layers >= 1 && c.hidden >= 1 && c.vocab >= 1);
	FUZZ_CHECK(c.n_kv_heads >= 1 && c.n_heads % c.n_kv_heads == 0);
	FUZZ_CHECK(c.head_dim >= 2 && c.head_dim % 2 == 0);
	FUZZ_CHECK((int64_t)c.n_heads * c.head_dim <= INT32_MAX);
	FUZZ_CHECK(c.topk >= 1 && c.topk <= 64 && c.topk <= c.n_experts);
	FUZZ_CHECK(c.n_experts <= 1 << 16 && c.expert_hidden >= 1);
	FUZZ_CHECK(c.max_length >= 1 && isfinite(c.rope_theta));
	FUZZ_CHECK(c.rope_theta > 0 && c.norm_eps >= 0 && c.norm_eps <= 1);
	return true;
}

static bool read_index(const char *text, size_t n, struct fault *fault)
{
	struct lm_index index;

	if (!lm_index_parse("f", text, (int64_t)n, &index, fault))
		return false;
	FUZZ_CHECK(index.n_shards >= 1);
	for (int32_t i = 0; i < index.n_shards; i++) {
		FUZZ_CHECK(index.shards[i][0] && !strchr(index.shards[i], '/'));
		FUZZ_CHECK(!i ||
		           strcmp(index.shards[i - 1], index.shards[i]) < 0);
	}
	lm_index_close(&index);
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_data)
{
	static bool (*const readers[])(const char *, size_t, struct fault *) = {
		read_config, read_index, read_tensors, read_header};
	struct fault fault = {{0}};

	if (n_data < 1)
		return 0;
	/* Memory of the exact size, at a multiple of 8. */
	char *const bytes = malloc(n_data - 1 + (n_data == 1));

	FUZZ_CHECK(bytes);
	memcpy(bytes, data + 1, n_data - 1);
	const bool good = readers[data[0] % 4](bytes, n_data - 1, &fault);

	FUZZ_CHECK(good != (fault.text[0] != 0));
	FUZZ_CHECK(memchr(fault.text, 0, sizeof(fault.text)));
	free(bytes);
	return 0;
}
