/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In what way a peer has gone, if it has. Three things have words of their own:
 * a death, which the machine or the boot connection knows of, a segment that
 * was closed in good order, and a connection that broke, whose other end may
 * well live.
 */
#include <stdio.h>
#include <unistd.h>

#include "../core/clock.h"
#include "segment_break.h"
#include "verdict.h"

enum {
	NEWS_MS = 1000, /* a fabric takes less to say what became of a peer */
	NAP_US = 1000,
};

/* Nobody knows whether it lives: the rendezvous lost it, or was lost. */
static bool is_silent(struct ferry_boot *boot, int32_t peer,
                      char why[FERRY_REASON_BYTES])
{
	if (!boot->ops->silent(boot, peer))
		return false;
	snprintf(why, FERRY_REASON_BYTES,
	         "its host does not answer the rendezvous");
	return true;
}

/*
 * Who gives another reason for going has not gone: his verdict is dealt with
 * as such.
 */
bool ferry_segment_has_gone(struct ferry_segment *segment, int32_t peer,
                            struct ferry_gone *gone)
{
	struct ferry_boot *boot = segment->world->boot;
	struct ferry_mem *mem = segment->mem;
	struct ferry_fabric *fabric = mem->fabric;
	const bool died = fabric->ops->dead(fabric, peer);
	const bool cut = mem->ops->cut(mem, peer, gone->why);

	/* The last word of the dead may have come before the news. */
	gone->flags = FERRY_VERDICT_CLOSED;
	if (ferry_segment_has_verdict(segment, peer))
		return segment->verdicts[peer].status == FERRY_OK;
	/* Its good-bye may not have come: then the boot connection knows. */
	if (!died)
		gone->flags = FERRY_VERDICT_CUT;
	else if (!boot->ops->closed(boot, peer))
		gone->flags = 0;
	return cut || died || is_silent(boot, peer, gone->why);
}

bool ferry_segment_is_deaf(struct ferry_segment *segment,
                           struct ferry_gone *gone)
{
	struct ferry_mem *mem = segment->mem;

	gone->flags = 0;
	return mem->ops->cut(mem, segment->world->rank, gone->why);
}

bool ferry_segment_await_gone(struct ferry_segment *segment, int32_t peer,
                              struct ferry_gone *gone)
{
	const uint64_t deadline = ferry_deadline_ns(NEWS_MS);

	while (!ferry_segment_has_verdict(segment, peer)) {
		if (ferry_segment_has_gone(segment, peer, gone))
			return gone->flags != FERRY_VERDICT_CLOSED;
		if (ferry_now_ns() >= deadline) {
			gone->flags = FERRY_VERDICT_CUT;
			snprintf(gone->why, sizeof(gone->why), "%s",
			         ferry_last_error());
			return true;
		}
		usleep(NAP_US);
	}
	return false;
}

/*
 * The words of the reporter, where what everybody can make of it is less: not
 * of a rank that died or closed.
 */
static const char *words(const struct ferry_segment *segment,
                         struct ferry_verdict *mine,
                         const struct ferry_gone *gone, char *text,
                         size_t bytes)
{
	mine->reporter = segment->world->rank;
	mine->flags |= gone->flags;
	if (!(gone->flags & FERRY_VERDICT_CUT) && mine->status == FERRY_PEER)
		return NULL;
	ferry_verdict_text(mine, gone->why, text, bytes);
	return text;
}

void ferry_segment_tell_gone(struct ferry_segment *segment,
                             struct ferry_verdict *mine,
                             const struct ferry_gone *gone)
{
	char text[sizeof(mine->text)];

	ferry_segment_tell(segment, mine,
	                   words(segment, mine, gone, text, sizeof(text)));
}

enum ferry_status ferry_segment_break_gone(struct ferry_segment *segment,
                                           struct ferry_verdict *mine,
                                           const struct ferry_gone *gone)
{
	char text[sizeof(mine->text)];

	return ferry_segment_break(
		segment, mine, words(segment, mine, gone, text, sizeof(text)));
}
