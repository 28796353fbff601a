/* SPDX-License-Identifier: Apache-2.0 */
/* What stands around the example of README.md, which takes the marked place. */
#include <stdio.h>
#include <stdlib.h>

#include <ferry/ferry.h>

enum { N = 2, HIDDEN = 7168, TOPK = 8, EXPERTS = 64, ROWS = 128 * TOPK };

static void must(enum ferry_status status)
{
	if (status == FERRY_OK)
		return;
	printf("%s\n", ferry_last_error());
	exit(1);
}

/* Experts that change nothing. */
static void run_experts(const uint16_t *rows, const int64_t *offsets)
{
	if (rows[0] != 0x3f80 || offsets[EXPERTS] != N * TOPK)
		exit(2);
}

int main(void)
{
	static uint16_t x[N * HIDDEN], y[N * HIDDEN];
	static uint16_t rows[(size_t)ROWS * HIDDEN];
	const int32_t n = N;
	int64_t offsets[EXPERTS + 1];
	int32_t ids[N][TOPK];
	float weights[N * TOPK];

	for (int i = 0; i < N * HIDDEN; i++)
		x[i] = 0x3f80; /* bf16: 1 */
	for (int i = 0; i < N * TOPK; i++) {
		ids[i / TOPK][i % TOPK] = i;
		weights[i] = 0.125f;
	}
	/* @README@ */
	return y[N * HIDDEN - 1] == 0x3f80 ? 0 : 3;
}
