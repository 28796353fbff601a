/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of a rendezvous, both sides. The input is a script: connections
 * come to the hub and say things, right ones (made here, with proofs) and
 * wrong ones (bytes of the script); what the hub answers goes to a spoke for
 * each. Whatever happens, the hub must not tell a spoke anything malformed.
 */
#include "fuzz.h"

#include <string.h>

#include "boot/hub.h"
#include "boot/spoke.h"
#include "core/clock.h"

enum { N_RANKS = 3, N_VISITORS = 5 };

struct script {
	const uint8_t *p;
	size_t n;
};

/* One connection, with what its rank knows. */
struct visitor {
	struct ferry_hub_conn *conn; /* NULL: not connected */
	struct ferry_reader reader;  /* of what the hub says */
	struct ferry_spoke spoke;
	bool corrupted; /* the script spoke to the spoke itself */
};

struct play {
	struct ferry_hub hub;
	struct visitor visitors[N_VISITORS];
	uint64_t later_ns; /* that the clock is ahead of the true one */
};

static const struct ferry_secret secret = {4, "hush"};

static uint8_t next(struct script *s)
{
	if (!s->n)
		return 0;
	s->n--;
	return *s->p++;
}

static void leave(struct play *play, struct visitor *v)
{
	if (!v->conn)
		return;
	ferry_hub_forget(&play->hub, v->conn);
	ferry_reader_destroy(&v->reader);
	ferry_spoke_destroy(&v->spoke);
	*v = (struct visitor){0};
}

static void come(struct play *play, struct visitor *v)
{
	if (v->conn)
		return;
	v->conn = ferry_hub_connect(&play->hub, "a visitor");
	FUZZ_CHECK(v->conn && ferry_spoke_init(&v->spoke, 1, N_RANKS));
}

static void say(struct play *play, struct visitor *v, struct ferry_msg head,
                const void *body)
{
	ferry_hub_input(&play->hub, v->conn, (const uint8_t *)&head,
	                sizeof(head));
	ferry_hub_input(&play->hub, v->conn, body, (size_t)head.bytes);
}

static void say_bytes(struct play *play, struct visitor *v, struct script *s)
{
	const size_t wanted = next(s);
	const size_t n = wanted < s->n ? wanted : s->n;

	ferry_hub_input(&play->hub, v->conn, s->p, n);
	s->p += n;
	s->n -= n;
}

static void say_hello(struct play *play, struct visitor *v, struct script *s)
{
	const uint8_t who = next(s);
	struct ferry_hello hello = {.protocol = FERRY_BOOT_PROTOCOL,
	                            .rank = (int8_t)who % 5,
	                            .n_ranks = who & 0x40 ? 2 : N_RANKS,
	                            .patience_ms = 50};

	say(play, v, ferry_msg_head(FERRY_MSG_HELLO, sizeof(hello), 0), &hello);
}

static void say_proof(struct play *play, struct visitor *v)
{
	uint8_t mac[FERRY_SHA256_BYTES];

	ferry_proof(mac, &secret, "peer", &v->conn->hello, v->conn->nonce);
	say(play, v, ferry_msg_head(FERRY_MSG_PROOF, sizeof(mac), 100000000),
	    mac);
}

static void say_give(struct play *play, struct visitor *v, struct script *s)
{
	uint8_t body[8 + 256] = {0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0};
	const uint8_t size = next(s);
	const size_t bytes = 1 + size % 16;

	if (v->spoke.expected || v->spoke.failed || !v->spoke.go)
		return;
	v->spoke.expected = bytes * N_RANKS;
	memset(body + 8, v->conn->rank, bytes);
	say(play, v, ferry_msg_head(FERRY_MSG_GIVE, 8 + bytes, v->spoke.round),
	    body);
}

static bool any_head(const void *arg, const struct ferry_msg *head)
{
	(void)arg;
	return head->bytes <= 1 << 20;
}

/* The result of a round holds what each rank gave. */
static void take_result(struct visitor *v)
{
	struct ferry_spoke *spoke = &v->spoke;

	if (!spoke->result)
		return;
	for (size_t i = 0; !v->corrupted && i < spoke->expected; i++)
		FUZZ_CHECK(spoke->result[i] == i / (spoke->expected / N_RANKS));
	free(spoke->result);
	spoke->result = NULL;
	spoke->expected = 0;
	spoke->round++;
}

/* A whole message of the hub: those of the introduction are not the spoke's. */
static void hear_message(struct visitor *v)
{
	const struct ferry_msg *head = &v->reader.head;

	FUZZ_CHECK(head->type >= FERRY_MSG_CHALLENGE &&
	           head->type <= FERRY_MSG_FAIL);
	if (head->type <= FERRY_MSG_REFUSE)
		return;
	ferry_spoke_input(&v->spoke, (const uint8_t *)head, sizeof(*head));
	ferry_spoke_input(&v->spoke, v->reader.body, (size_t)head->bytes);
	FUZZ_CHECK(v->corrupted || v->spoke.failed != FERRY_PROTO ||
	           strstr(v->spoke.text, "sent a malformed message"));
	FUZZ_CHECK(v->corrupted || !strstr(v->spoke.text, "rank 0 sent"));
	take_result(v);
}

/* Sends at most n bytes of what the hub has to say. */
static void hear(struct play *play, struct visitor *v, size_t n)
{
	const uint8_t *data;
	size_t n_data = ferry_hub_output(&play->hub, v->conn, &data);

	if (n_data > n)
		n_data = n;
	if (!n_data)
		return;
	const size_t sent = n_data;
	while (n_data) {
		bool ready;

		FUZZ_CHECK(ferry_reader_feed(&v->reader, &data, &n_data,
		                             any_head, NULL,
		                             &ready) == FERRY_OK);
		if (ready)
			hear_message(v);
	}
	ferry_hub_sent(v->conn, sent);
}

static void hear_nonsense(struct visitor *v, struct script *s)
{
	const size_t wanted = next(s);
	const size_t n = wanted < s->n ? wanted : s->n;

	v->corrupted = true;
	ferry_spoke_input(&v->spoke, s->p, n);
	take_result(v);
	s->p += n;
	s->n -= n;
}

static void act(struct play *play, struct script *s)
{
	const uint8_t op = next(s);
	struct visitor *v = &play->visitors[(op >> 4) % N_VISITORS];

	come(play, v);
	switch (op % 12) {
	case 0:
		say_bytes(play, v, s);
		break;
	case 1:
		say_hello(play, v, s);
		break;
	case 2:
		say_proof(play, v);
		break;
	case 3:
		say_give(play, v, s);
		break;
	case 4:
		say(play, v, ferry_msg_head(FERRY_MSG_BYE, 0, 0), NULL);
		break;
	case 5:
		say(play, v, ferry_msg_head(FERRY_MSG_ABORT, 0, 0), NULL);
		break;
	case 6:
		ferry_hub_end(&play->hub, v->conn, FERRY_LEAVE_DIED);
		break;
	case 7:
		play->later_ns += (uint64_t)next(s) * 10000000u;
		ferry_hub_tick(&play->hub, ferry_now_ns() + play->later_ns);
		break;
	case 8:
		hear_nonsense(v, s);
		break;
	case 9:
		hear(play, v, next(s));
		break;
	default:
		for (int i = 0; i < 20; i++)
			hear(play, v, 1000000);
		break;
	}
}

static void check(struct play *play)
{
	const struct ferry_hub *hub = &play->hub;
	int32_t n_absent = 0;

	for (int32_t r = 0; r < N_RANKS; r++)
		n_absent += hub->absent[r];
	FUZZ_CHECK(n_absent == hub->n_absent);
	FUZZ_CHECK(hub->n_deaths >= 0 && hub->n_deaths <= N_RANKS);
	FUZZ_CHECK(!hub->failed || hub->text[0]);
	for (int i = 0; i < N_VISITORS; i++)
		if (play->visitors[i].conn &&
		    play->visitors[i].conn->state == FERRY_CONN_OVER)
			leave(play, &play->visitors[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_data)
{
	struct script script = {data, n_data};
	static struct play play;

	play = (struct play){.later_ns = 0};
	if (ferry_hub_init(&play.hub, NULL, N_RANKS, &secret) != FERRY_OK)
		return 0;
	while (script.n) {
		act(&play, &script);
		check(&play);
	}
	for (int i = 0; i < N_VISITORS; i++)
		leave(&play, &play.visitors[i]);
	ferry_hub_destroy(&play.hub);
	return 0;
}
