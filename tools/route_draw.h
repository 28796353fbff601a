/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads out of a generator: equal seeds give equal loads on every machine. Its
 * mathematics use only + - * / and square roots, which IEEE 754 defines to the
 * bit.
 */
#ifndef FERRY_ROUTE_DRAW_H
#define FERRY_ROUTE_DRAW_H

#include "route_parts.h"

/* Mean load of an expert. */
enum { ROUTE_DRAW_MEAN = 10000 };

/* What to draw. */
struct route_draw {
	/*
	 * "lognormal:SIGMA", "zipf:RATIO" (fullest expert against the mean),
	 * "maps:FOLDER" (fitted to the placements that EPLB made).
	 */
	const char *spec;
	int32_t n_experts, n_layers, n_steps; /* of maps: what is there */
	uint64_t seed;
};

/* False for a spec that is not one of those. */
bool route_draw_check(const struct route_draw *draw, struct fault *fault);

/* note[n] gets a line that says how well the loads fit, if they are fitted. */
bool route_draw(const struct route_draw *draw, struct route *route, char *note,
                size_t n, struct fault *fault);

/* e^x and ln x, the same bits everywhere, within 1e-14. */
double draw_exp(double x);
double draw_log(double x);

/* Inverse of the normal distribution function, 0 < u < 1, within 1e-8. */
double draw_normal(double u);

/* Weights in any unit into loads of mean ROUTE_DRAW_MEAN. */
void draw_scale(const double *weights, int32_t n, int64_t *loads);

#endif
