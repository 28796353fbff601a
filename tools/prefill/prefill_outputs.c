/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs that would cost a run, or what it reads. */
#include "prefill_outputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../alloc.h"
#include "prefill_file.h"

enum { N_OUTPUTS = 4 };

/* path is NULL where there is none, or where it is stdout. */
struct output {
	const char *option, *path;
};

static void list(const struct prefill_args *a, struct output out[N_OUTPUTS])
{
	const bool to_file = a->json && strcmp(a->json, "-") != 0;

	out[0] = (struct output){"record", a->record};
	out[1] = (struct output){"trace", a->trace};
	out[2] = (struct output){"report", a->report};
	out[3] = (struct output){"json", to_file ? a->json : NULL};
}

static bool check_pair(const struct output *a, const struct output *b)
{
	if (!a->path || !b->path || !prefill_file_same(a->path, b->path))
		return true;
	fprintf(stderr, "%s: --%s and --%s are the same file, %s\n",
	        prefill_command.name, a->option, b->option, b->path);
	return false;
}

static bool check_read(const struct prefill_args *args, const char *path)
{
	struct output out[N_OUTPUTS];

	list(args, out);
	for (int i = 0; i < N_OUTPUTS; i++)
		if (out[i].path && prefill_file_same(out[i].path, path)) {
			fprintf(stderr,
			        "%s: --%s is %s, which is read and would be "
			        "lost\n",
			        prefill_command.name, out[i].option,
			        out[i].path);
			return false;
		}
	return true;
}

bool prefill_outputs_check(const struct prefill_args *args)
{
	struct output out[N_OUTPUTS];

	list(args, out);
	for (int i = 0; i < N_OUTPUTS; i++)
		for (int k = 0; k < i; k++)
			if (!check_pair(&out[k], &out[i]))
				return false;
	for (int t = 0; t < args->texts.n; t++)
		if (!check_read(args, args->texts.values[t]))
			return false;
	for (int i = 0; i < N_OUTPUTS; i++)
		if (out[i].path && !prefill_file_check(out[i].path))
			return false;
	return true;
}

static bool check_named(const struct prefill_args *args, const char *name)
{
	const size_t n = strlen(args->model) + strlen(name) + 2;
	char *const path = alloc_or_exit(n, 1);

	snprintf(path, n, "%s/%s", args->model, name);
	const bool good = check_read(args, path);

	free(path);
	return good;
}

bool prefill_outputs_spare(const struct prefill_args *args,
                           const struct lm_model *model)
{
	static const char *const names[] = {"config.json", "tokenizer.json",
	                                    "model.safetensors.index.json"};
	const char *path;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!check_named(args, names[i]))
			return false;
	for (int32_t i = 0; (path = lm_model_file(model, i)); i++)
		if (!check_read(args, path))
			return false;
	return true;
}
