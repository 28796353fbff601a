/* SPDX-License-Identifier: Apache-2.0 */
/* Boots of every kind for tests. */
#include "meeting.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A port that was free a moment ago. */
static int free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t n = sizeof(a);
	const int fd = socket(AF_INET, SOCK_STREAM, 0);

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) ||
	    getsockname(fd, (struct sockaddr *)&a, &n))
		abort();
	close(fd);
	return ntohs(a.sin_port);
}

void meeting_init(struct meeting *meeting, enum meeting_kind kind)
{
	static int n_meetings;

	*meeting = (struct meeting){.kind = kind, .secret = "a secret"};
	if (kind == MEET_UNIX)
		snprintf(meeting->where, sizeof(meeting->where),
		         "unix:ferry-meeting-%d-%d", (int)getpid(),
		         n_meetings++);
	if (kind == MEET_TCP)
		snprintf(meeting->where, sizeof(meeting->where), "127.0.0.1:%d",
		         free_port());
}

void meeting_options(const struct meeting *meeting, const struct rank *rank,
                     const char *more, char *options, size_t bytes)
{
	if (meeting->kind == MEET_TEAM)
		snprintf(options, bytes, "%s", more);
	else
		snprintf(options, bytes,
		         "RANK=%d;SIZE=%d;RENDEZVOUS=%s;SECRET=%s;%s",
		         rank->rank, rank->n_ranks, meeting->where,
		         meeting->secret, more);
}

static void leave(void *arg)
{
	struct visitor *v = arg;

	ferry_boot_close(v->boot);
	ferry_ctx_destroy(&v->ctx);
	free(v);
}

enum ferry_status visitor_open(const struct rank *rank,
                               struct visitor **visitor)
{
	struct visitor *v = calloc(1, sizeof(*v));
	const struct meeting *meeting = rank->arg;
	struct ferry_world_config config;
	char options[256];

	ranks_config(&config);
	if (meeting->kind != MEET_TEAM)
		config.team = NULL;
	if (meeting->open_timeout_ms)
		config.open_timeout_ms = meeting->open_timeout_ms;
	config.log = meeting->log;
	config.log_arg = meeting->log_arg;
	meeting_options(meeting, rank, "", options, sizeof(options));
	config.options = options;
	*visitor = v;
	v->start_ns = ferry_now_ns();
	RANKS_OK(ferry_ctx_init(&v->ctx, &config));
	ranks_defer(leave, v);
	return ferry_boot_open(&v->ctx, &config, &v->boot);
}

enum ferry_status visitor_gather(struct visitor *v, int64_t timeout_ms)
{
	int32_t all[RANKS_MAX];
	const struct ferry_boot *boot = v->boot;

	v->start_ns = ferry_now_ns();
	const enum ferry_status status =
		boot->ops->allgather(v->boot, &boot->rank, all, sizeof(*all),
	                             ferry_deadline_ns(timeout_ms));
	for (int32_t r = 0; status == FERRY_OK && r < boot->n_ranks; r++)
		RANKS_EQ(all[r], r);
	return status;
}

int64_t visitor_ms(const struct visitor *v)
{
	return (int64_t)(ferry_now_ns() - v->start_ns) / 1000000;
}
