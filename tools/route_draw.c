/* SPDX-License-Identifier: Apache-2.0 */
/* Log-normal and Zipf loads, and the mathematics that they need. */
#include "route_draw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bits.h"
#include "route_maps.h"

static const double LN2 = 0x1.62e42fefa39efp-1;

double draw_exp(double x)
{
	const double k = floor(x / LN2 + 0.5);
	const double r = x - k * LN2;
	double sum = 1;

	for (int i = 16; i > 0; i--)
		sum = 1 + r / i * sum;
	return ldexp(sum, (int)k);
}

double draw_log(double x)
{
	int exponent;
	const double m = frexp(x, &exponent);
	const double q = (m - 1) / (m + 1), q2 = q * q;
	double sum = 0;

	for (int i = 61; i > 0; i -= 2)
		sum = 1.0 / i + q2 * sum;
	return 2 * q * sum + exponent * LN2;
}

static double polynomial(const double *c, int n, double x)
{
	double sum = c[0];

	for (int i = 1; i < n; i++)
		sum = sum * x + c[i];
	return sum;
}

/*
 * P. J. Acklam's rational approximation of the normal quantile, relative error
 * 1.15e-9.
 */
double draw_normal(double u)
{
	static const double a[] = {
		-3.969683028665376e+01, 2.209460984245205e+02,
		-2.759285104469687e+02, 1.383577518672690e+02,
		-3.066479806614716e+01, 2.506628277459239e+00};
	static const double b[] = {
		-5.447609879822406e+01, 1.615858368580409e+02,
		-1.556989798598866e+02, 6.680131188771972e+01,
		-1.328068155288572e+01, 1};
	static const double c[] = {
		-7.784894002430293e-03, -3.223964580411365e-01,
		-2.400758277161838e+00, -2.549732539343734e+00,
		4.374664141464968e+00,  2.938163982698783e+00};
	static const double d[] = {7.784695709041462e-03, 3.224671290700398e-01,
	                           2.445134137142996e+00, 3.754408661907416e+00,
	                           1};
	const double tail = 0.02425;

	if (u > 1 - tail)
		return -draw_normal(1 - u);
	if (u < tail) {
		const double q = sqrt(-2 * draw_log(u));

		return polynomial(c, 6, q) / polynomial(d, 5, q);
	}
	const double q = u - 0.5;

	return polynomial(a, 6, q * q) * q / polynomial(b, 6, q * q);
}

/* Inside 0..1, never at an end. */
static double draw_uniform(uint64_t *rng)
{
	return ((double)(rng_next(rng) >> 12) + 0.5) * 0x1p-52;
}

void draw_scale(const double *weights, int32_t n, int64_t *loads)
{
	double sum = 0;

	for (int32_t e = 0; e < n; e++)
		sum += weights[e];
	for (int32_t e = 0; e < n; e++)
		loads[e] =
			(int64_t)(weights[e] / sum * n * ROUTE_DRAW_MEAN + 0.5);
}

static void fill_lognormal(double sigma, uint64_t *rng, int32_t n,
                           double *weights)
{
	for (int32_t e = 0; e < n; e++)
		weights[e] = draw_exp(sigma * draw_normal(draw_uniform(rng)));
}

static double zipf_ratio(double s, int32_t n)
{
	double sum = 0;

	for (int32_t i = 1; i <= n; i++)
		sum += draw_exp(-s * draw_log(i));
	return n / sum;
}

/* The exponent whose fullest expert has `ratio` times the mean. */
static double zipf_exponent(double ratio, int32_t n)
{
	double low = 0, high = 40;

	for (int i = 0; i < 60; i++) {
		const double s = (low + high) / 2;

		if (zipf_ratio(s, n) < ratio)
			low = s;
		else
			high = s;
	}
	return high;
}

/* Ranks of popularity fall to experts at random. */
static void fill_zipf(double s, uint64_t *rng, int32_t n, double *weights)
{
	for (int32_t i = 0; i < n; i++)
		weights[i] = draw_exp(-s * draw_log(i + 1));
	for (int32_t i = n - 1; i > 0; i--) {
		const int32_t j = (int32_t)(rng_next(rng) % (uint64_t)(i + 1));
		const double w = weights[i];

		weights[i] = weights[j];
		weights[j] = w;
	}
}

/* The number behind "NAME:"; false when the spec is not of that name. */
static bool parameter(const char *spec, const char *name, double *value)
{
	const size_t n = strlen(name);
	char *end;

	if (strncmp(spec, name, n) != 0 || spec[n] != ':')
		return false;
	*value = strtod(spec + n + 1, &end);
	return end > spec + n + 1 && !*end && *value >= 0;
}

static bool is_maps(const struct route_draw *draw)
{
	return !strncmp(draw->spec, "maps:", 5);
}

bool route_draw_check(const struct route_draw *draw, struct fault *fault)
{
	double x;

	if (is_maps(draw) ||
	    (parameter(draw->spec, "lognormal", &x) && x <= 5) ||
	    (parameter(draw->spec, "zipf", &x) && x >= 1 &&
	     x <= draw->n_experts))
		return true;
	return fault_set(fault,
	                 "--generate is '%s', allowed are lognormal:0..5, "
	                 "zipf:1..%d, maps:FOLDER",
	                 draw->spec, draw->n_experts);
}

/* The spec is one of those that can be drawn. */
static void fill(const struct route_draw *draw, struct route *route,
                 double *weights)
{
	uint64_t rng = draw->seed;
	const int32_t n = draw->n_experts;
	double x, s = 0;
	const bool lognormal = parameter(draw->spec, "lognormal", &x);

	if (!lognormal && parameter(draw->spec, "zipf", &x))
		s = zipf_exponent(x, n);
	for (int32_t i = 0; i < route->n_steps * route->n_layers; i++) {
		if (lognormal)
			fill_lognormal(x, &rng, n, weights);
		else
			fill_zipf(s, &rng, n, weights);
		draw_scale(weights, n, route->loads + (int64_t)i * n);
	}
	for (int32_t step = 0; step < route->n_steps; step++) {
		struct route_step *const at = &route->steps[step];

		snprintf(at->name, sizeof(at->name), "draw %d", step);
		at->task = at->group = step;
	}
}

bool route_draw(const struct route_draw *draw, struct route *route, char *note,
                size_t n, struct fault *fault)
{
	const struct route_ask ask = {0};
	double *weights;

	note[0] = 0;
	*route = (struct route){.n_steps = draw->n_steps,
	                        .n_layers = draw->n_layers,
	                        .n_experts = draw->n_experts};
	if (!route_draw_check(draw, fault))
		return false;
	if (is_maps(draw))
		return route_maps(draw->spec + 5, draw->n_experts, route, note,
		                  n, fault);
	if (!route_alloc((size_t)draw->n_experts, sizeof(*weights), &weights,
	                 fault))
		return false;
	const bool good = route_make(route, draw->spec, &ask, false, fault);

	if (good)
		fill(draw, route, weights);
	free(weights);
	if (!good)
		route_close(route);
	return good;
}
