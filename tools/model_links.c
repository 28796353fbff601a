/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links by name. Each says where its figures are from; what is nominal is what
 * a maker promises, and nobody reaches.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/nearest.h"
#include "ep_model.h"

static const double BYTES_PER_US = 1000; /* of a GB/s */

static const struct model_link presets[] = {
	{.name = "nvlink-h200",
         .alpha_us = 1.25,
         .bytes_per_us = 365e3,
         .memory_bytes_per_us = 4026e3,
         .base_us = {5.4, 3.4},
         .source = "measured here: bench/results/h200x2-2026-11-30, "
                   "figures-d741607.json, and docs/fabric.md"},
	{.name = "nvlink-h800",
         .alpha_us = 1.25,
         .bytes_per_us = 160e3,
         .source = "DeepEP docs/legacy.md: 160 GB/s at most; alpha of "
                   "nvlink-h200"},
	{.name = "nvlink-gb200",
         .alpha_us = 1.25,
         .bytes_per_us = 900e3,
         .source = "nominal, each way; alpha of nvlink-h200"},
	{.name = "cx7",
         .alpha_us = 14.3,
         .bytes_per_us = 45.9e3,
         .source = "ConnectX-7, one for each rank: 734 Gb/s both ways, 2 "
                   "bytes in 14.3 us (modal-labs/multinode-training-guide)"},
	{.name = "cx7-nominal",
         .alpha_us = 0,
         .bytes_per_us = 50e3,
         .source = "ConnectX-7, one for each rank: 400 Gb/s, nominal"},
	{.name = "efa-p5en",
         .alpha_us = 17.3,
         .bytes_per_us = 50e3,
         .source = "16 x 200 Gb/s for 8 ranks, nominal (AWS p5en.48xlarge); "
                   "256 bytes in 17.3 us (same guide, fi_pingpong, H100)"},
};

enum { N_PRESETS = sizeof(presets) / sizeof(*presets) };

const struct model_link *model_preset(int i)
{
	return i >= 0 && i < N_PRESETS ? &presets[i] : NULL;
}

int model_numbers(const char *text, int least, int most, double *numbers)
{
	int n = 0;

	for (;;) {
		char *end;
		const double value = strtod(text, &end);

		/* strtod also takes blanks, inf, nan and hexadecimal. */
		if (end == text || !strchr("0123456789.", *text) ||
		    !isfinite(value) || n == most ||
		    memchr(text, 'x', (size_t)(end - text)))
			return 0;
		numbers[n++] = value;
		if (!*end)
			return n >= least ? n : 0;
		if (*end != ',')
			return 0;
		text = end + 1;
	}
}

static bool fault_link(const char *text, struct fault *fault)
{
	const char *names[N_PRESETS];

	for (int i = 0; i < N_PRESETS; i++)
		names[i] = presets[i].name;
	const char *near = ferry_nearest(text, names, N_PRESETS);

	return fault_set(
		fault,
		"'%.60s', allowed is a name of --links or "
		"ALPHA_US,GB_PER_S[,GAP_US] with GB_PER_S above 0%s%s%s",
		text, near ? "; did you mean '" : "", near ? near : "",
		near ? "'?" : "");
}

bool model_link_parse(const char *text, struct model_link *link,
                      struct fault *fault)
{
	double numbers[3] = {0};

	for (int i = 0; i < N_PRESETS; i++)
		if (!strcmp(text, presets[i].name)) {
			*link = presets[i];
			return true;
		}
	if (!model_numbers(text, 2, 3, numbers) || numbers[1] <= 0)
		return fault_link(text, fault);
	*link = (struct model_link){
		.name = "given",
		.alpha_us = numbers[0],
		.bytes_per_us = numbers[1] * BYTES_PER_US,
		.gap_us = numbers[2],
		.source = "given",
	};
	return true;
}
