/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What listens while a fabric is at work: only the address of this host on the
 * network, and after the end nothing. Who comes there without being a rank
 * harms nobody. An interface that reaches no other host is said to be that.
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <ferry/fabric.h>
#include <ferry/moe.h>

#include "core/bits.h"
#include "hosted.h"
#include "moe/run_args.h"

enum { N_RANKS = 4 };

/* Every line begins with "tcp 10.77.0.N:"; how many there are. */
static int count_listeners(const struct rank *rank)
{
	char text[2000];
	char address[16];
	char want[32];
	int n = 0;

	namespaces_address(hosted_host(rank->rank, rank->n_ranks), address);
	snprintf(want, sizeof(want), "tcp %s:", address);
	RANKS_CHECK(namespaces_listeners(text, sizeof(text)));
	for (const char *p = text; *p; p = strchr(p, '\n') + 1) {
		if (strncmp(p, want, strlen(want)) != 0)
			RANKS_FAIL("listens beyond '%s': %s", want, text);
		n++;
	}
	return n;
}

/* Somebody who is no rank, at each of these sockets. */
static void disturb(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	uint8_t garbage[512];
	char address[16];
	char text[2000];
	unsigned port;
	uint64_t seed = 1;

	RANKS_CHECK(namespaces_listeners(text, sizeof(text)));
	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (uint8_t)rng_next(&seed);
	for (const char *p = text; *p; p = strchr(p, '\n') + 1) {
		const int fd = socket(AF_INET, SOCK_STREAM, 0);

		RANKS_EQ(sscanf(p, "tcp %15[0-9.]:%u", address, &port), 2);
		inet_pton(AF_INET, address, &to.sin_addr);
		to.sin_port = htons((uint16_t)port);
		RANKS_EQ(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
		RANKS_CHECK(send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL) >
		            0);
		close(fd);
	}
}

static void meet(struct rank *rank, struct ferry_segment *segment,
                 uint64_t round)
{
	for (int32_t r = 0; r < rank->n_ranks; r++)
		RANKS_OK(ferry_segment_signal(segment, r, 0));
	RANKS_OK(ferry_segment_kick(segment));
	RANKS_OK(ferry_segment_wait(segment, 0,
	                            round * (uint64_t)rank->n_ranks));
}

static void body(struct rank *rank)
{
	struct ferry_segment *segment;

	RANKS_OK(ferry_segment_open(rank->world, 4096, 1, &segment));
	if (rank->rank == N_RANKS - 1)
		disturb();
	for (uint64_t round = 1; round <= 20; round++)
		meet(rank, segment, round);
	const int n = count_listeners(rank);

	printf("# rank %d: %d sockets listen\n", rank->rank, n);
	ranks_meet(0, rank->n_ranks);
	ferry_segment_close(segment);
	ferry_world_close(rank->world);
	rank->world = NULL;
	ranks_meet(1, rank->n_ranks);
	RANKS_EQ(count_listeners(rank), 0);
}

static void only_what_was_asked_for(void **state)
{
	struct ranks how = run_args_ranks(N_RANKS);

	(void)state;
	ranks_run(&how, body);
}

static void reaches_nobody(struct rank *rank)
{
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct ferry_moe *moe;

	config.max_tokens = 1;
	config.hidden = 8;
	config.topk = 1;
	config.n_experts = N_RANKS;
	RANKS_OK(ferry_moe_open(rank->world, &config, &moe));
	RANKS_STATUS(ferry_dispatch(moe, 0, &in, &out, NULL), FERRY_TIMEOUT);
	RANKS_TEXT(ferry_last_error(), "nothing has left for it for ");
	RANKS_TEXT(ferry_last_error(), "://127.0.0.1:");
	ferry_moe_close(moe);
}

static void the_loopback_reaches_nobody(void **state)
{
	struct ranks how = run_args_ranks(N_RANKS);

	(void)state;
	how.options = "OFI_INTERFACE=lo";
	how.timeout_ms = 500;
	ranks_run(&how, reaches_nobody);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_what_was_asked_for),
		cmocka_unit_test(the_loopback_reaches_nobody),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
