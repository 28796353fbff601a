/* SPDX-License-Identifier: Apache-2.0 */
/* What ferry plan and ferry replay ask alike, in the library's units. */
#include "balance_args.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "route_draw.h"
#include "route_parts.h"

const char *const balance_splits[] = {"even", "quota", "exact", NULL};

bool balance_decimal(const char *text, int64_t scale, int64_t *value)
{
	char *end;
	const bool digit = (*text >= '0' && *text <= '9') || *text == '.';
	const double x = digit ? strtod(text, &end) : -1;

	if (!digit || *end || !(x >= 0) || x * (double)scale > 0x1p40)
		return false;
	/* The nearest number that has so many digits, not the one below. */
	*value = (int64_t)(x * (double)scale + 1e-6);
	return true;
}

struct ferry_cost *balance_cost(const struct balance_args *args,
                                bool half_duplex)
{
	const size_t n_links = (size_t)(args->ranks * args->ranks);
	struct ferry_cost *const cost =
		alloc_or_exit(sizeof(*cost) + 2 * n_links * sizeof(int64_t), 1);
	int64_t *const alpha = (int64_t *)(void *)(cost + 1);
	int64_t *const ps = alpha + n_links;

	for (size_t i = 0; i < n_links; i++) {
		alpha[i] = args->alpha_us * 1000;
		ps[i] = (1000 + args->beta_gbps - 1) / args->beta_gbps;
	}
	*cost = (struct ferry_cost)FERRY_COST_INIT;
	cost->n_ranks = (int32_t)args->ranks;
	cost->alpha_ns = alpha;
	cost->ps_per_byte = ps;
	cost->all_bytes = args->expert_bytes;
	cost->half_duplex = half_duplex;
	return cost;
}

static int complain_decimal(const struct opt_command *command, const char *name,
                            const char *text, const char *allowed)
{
	return opt_complain(command, "--%s is '%s', allowed is %s", name, text,
	                    allowed);
}

int balance_numbers(const struct opt_command *command,
                    const struct balance_args *args,
                    struct balance_numbers *numbers)
{
	int64_t gamma = 0, threshold = 0;

	*numbers =
		(struct balance_numbers){.window_ns = args->window_us * 1000};
	if (args->threshold &&
	    (!balance_decimal(args->threshold, 1000000, &threshold) ||
	     threshold < 1000000 || threshold > INT64_C(1000000000000)))
		return complain_decimal(command, "threshold", args->threshold,
		                        "a number 1..1000000, of max/mean");
	if (args->gamma &&
	    (!balance_decimal(args->gamma, 1000, &gamma) || gamma > 100000))
		return complain_decimal(command, "gamma", args->gamma,
		                        "a number 0..100");
	if (args->window_us && !args->expert_bytes)
		return opt_complain(command, "--window-us needs "
		                             "--expert-bytes");
	numbers->threshold_ppm = threshold;
	/* The library takes 0 as "default". */
	numbers->gamma_milli = gamma ? (int32_t)gamma : -1;
	numbers->max_swaps = args->swaps == 0  ? -1
	                     : args->swaps < 0 ? 0
	                                       : (int32_t)args->swaps;
	if (args->window_us)
		numbers->cost = balance_cost(args, false);
	return OPT_GO_ON;
}

void balance_numbers_free(struct balance_numbers *numbers)
{
	free(numbers->cost);
	numbers->cost = NULL;
}

static int complain(const struct opt_command *command, const char *text)
{
	fprintf(stderr, "%s: %s\n", command->name, text);
	return EXIT_FAILED;
}

int balance_source(const struct opt_command *command,
                   const struct balance_args *args, const struct route_ask *ask,
                   struct route *route, char *note, size_t n)
{
	const struct route_draw draw = {
		.spec = args->generate,
		.n_experts = (int32_t)(args->experts ? args->experts : 128),
		.n_layers = (int32_t)(args->layers ? args->layers : 1),
		.n_steps = (int32_t)args->draws,
		.seed = (uint64_t)args->seed,
	};
	struct fault fault;

	note[0] = 0;
	if (!args->trace == !args->generate)
		return opt_complain(command,
		                    "give a file of loads, or "
		                    "--generate%s",
		                    args->trace ? ", not both" : "");
	if (args->generate && !route_draw_check(&draw, &fault))
		return opt_complain(command, "%s", fault.text);
	if (args->trace ? !route_open(args->trace, ask, route, &fault)
	                : !route_draw(&draw, route, note, n, &fault))
		return complain(command, fault.text);
	return OPT_GO_ON;
}

int balance_check_ranks(const struct opt_command *command,
                        const struct balance_args *args, int32_t n_experts)
{
	if (args->ranks <= n_experts)
		return OPT_GO_ON;
	return opt_complain(command,
	                    "--ranks is %" PRId64 ", allowed is at most the %d "
	                    "experts",
	                    args->ranks, n_experts);
}

struct ferry_placement *balance_placement(const struct opt_command *command,
                                          const char *path)
{
	struct ferry_placement *placement = NULL;
	struct route_bytes text;
	struct fault fault;

	if (!route_bytes_read(path, &text, &fault)) {
		complain(command, fault.text);
		return NULL;
	}
	if (ferry_placement_read(text.bytes, text.n, &placement) != FERRY_OK)
		fprintf(stderr, "%s: %s: %s\n", command->name, path,
		        ferry_last_error());
	route_bytes_free(&text);
	return placement;
}
