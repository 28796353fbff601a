/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boots of every kind for tests, without a world: what a rank is told, and how
 * long things take.
 */
#ifndef MEETING_H
#define MEETING_H

#include "boot/team.h"
#include "core/clock.h"
#include "support/ranks.h"

enum meeting_kind { MEET_TEAM, MEET_UNIX, MEET_TCP, N_MEETING_KINDS };

/* The arg of a run of ranks. */
struct meeting {
	enum meeting_kind kind;
	char where[64]; /* RENDEZVOUS of unix and tcp */
	const char *secret;
	int32_t open_timeout_ms; /* 0: 10 s */
	ferry_log_fn *log;
	void *log_arg;
};

/* A fresh place of this kind. */
void meeting_init(struct meeting *meeting, enum meeting_kind kind);

/* A boot and what must live as long. */
struct visitor {
	struct ferry_ctx ctx;
	struct ferry_boot *boot;
	uint64_t start_ns;
};

/* Options of a rank that goes there; `more` is put behind. */
void meeting_options(const struct meeting *meeting, const struct rank *rank,
                     const char *more, char *options, size_t bytes);

/* Opens the boot of this rank; it is closed after the end of the body. */
enum ferry_status visitor_open(const struct rank *rank,
                               struct visitor **visitor);

/* Allgather of the rank's number, checked; deadline from now. */
enum ferry_status visitor_gather(struct visitor *v, int64_t timeout_ms);

/* Milliseconds since the last visitor_open or visitor_gather began. */
int64_t visitor_ms(const struct visitor *v);

#endif
