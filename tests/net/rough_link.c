/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process of a bad network: reads packets of IPv4 from the TUN devices,
 * keeps each until it is due, and writes it to the device of its destination.
 */
#include "rough_link.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/bits.h"
#include "core/clock.h"
#include "core/order.h"

enum {
	PACKET_BYTES = 1500,
	HEADER_BYTES = 20,
	DESTINATION = 19, /* last byte of the address */
	QUEUE = 4096,     /* then packets are lost, as in a router */
	READ_AT_ONCE = 64,
	LONGEST_QUEUE_MS = 50, /* of a link with a limit */
};

struct packet {
	uint64_t due_ns;
	uint64_t number; /* of those due at the same time the older one goes */
	int to;
	size_t bytes;
	unsigned char data[PACKET_BYTES];
};

struct station {
	struct rough_link *link;
	int n_hosts;
	int tuns[ROUGH_HOSTS];
	uint64_t rng;
	uint64_t n_packets;
	uint64_t free_ns[ROUGH_HOSTS]; /* when its last packet has left */
	uint64_t last_due_ns[ROUGH_HOSTS][ROUGH_HOSTS];
	int n_queued;
	struct packet *queue[QUEUE]; /* a heap, the next one first */
	struct packet packets[QUEUE];
};

static bool is_before(const struct packet *a, const struct packet *b)
{
	return a->due_ns < b->due_ns ||
	       (a->due_ns == b->due_ns && a->number < b->number);
}

static void swap(struct packet **a, struct packet **b)
{
	struct packet *t = *a;

	*a = *b;
	*b = t;
}

static void rise(struct station *s, int i)
{
	while (i > 0 && is_before(s->queue[i], s->queue[(i - 1) / 2])) {
		swap(&s->queue[i], &s->queue[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
}

static void sink(struct station *s, int i)
{
	for (;;) {
		int child = 2 * i + 1;

		if (child >= s->n_queued)
			return;
		if (child + 1 < s->n_queued &&
		    is_before(s->queue[child + 1], s->queue[child]))
			child++;
		if (!is_before(s->queue[child], s->queue[i]))
			return;
		swap(&s->queue[child], &s->queue[i]);
		i = child;
	}
}

static bool chance(struct station *s, const uint32_t *ppm)
{
	return rng_next(&s->rng) % 1000000 < load_acquire_u32(ppm);
}

/* When it arrives. 0: the line is so full that it is lost. */
static uint64_t due(struct station *s, int from, size_t bytes, uint64_t now)
{
	const uint64_t kib = load_acquire_u32(&s->link->kib_per_s);
	const uint64_t jitter = load_acquire_u32(&s->link->jitter_us);
	uint64_t leaves = now;

	if (kib) {
		if (s->free_ns[from] > leaves)
			leaves = s->free_ns[from];
		if (leaves - now > LONGEST_QUEUE_MS * UINT64_C(1000000))
			return 0;
		leaves += bytes * UINT64_C(1000000000) / (kib * 1024);
		s->free_ns[from] = leaves;
	}
	return leaves + load_acquire_u32(&s->link->delay_us) * UINT64_C(1000) +
	       rng_next(&s->rng) % (jitter * 1000 + 1);
}

static void keep(struct station *s, int from, const struct packet *p,
                 uint64_t now)
{
	const uint64_t due_ns = due(s, from, p->bytes, now);
	uint64_t *last = &s->last_due_ns[from][p->to];

	if (s->n_queued == QUEUE || !due_ns) {
		add_seq_u64(&s->link->n_lost, 1);
		return;
	}
	if (due_ns < *last)
		add_seq_u64(&s->link->n_overtook, 1);
	else
		*last = due_ns;
	struct packet *own = s->queue[s->n_queued];

	own->due_ns = due_ns;
	own->number = s->n_packets++;
	own->to = p->to;
	own->bytes = p->bytes;
	memcpy(own->data, p->data, p->bytes);
	rise(s, s->n_queued++);
}

static void take(struct station *s, int from, struct packet *p, uint64_t now)
{
	/* Neighbours' discovery of IPv6 has nobody to find here. */
	if (p->bytes < HEADER_BYTES || p->data[0] >> 4 != 4)
		return;
	p->to = p->data[DESTINATION] - 1;
	if (p->to < 0 || p->to >= s->n_hosts)
		return;
	if (load_acquire_u32(&s->link->cut[from]) >> p->to & 1) {
		add_seq_u64(&s->link->n_cut, 1);
		return;
	}
	if (chance(s, &s->link->loss_ppm)) {
		add_seq_u64(&s->link->n_lost, 1);
		return;
	}
	keep(s, from, p, now);
	if (chance(s, &s->link->twice_ppm)) {
		add_seq_u64(&s->link->n_twice, 1);
		keep(s, from, p, now);
	}
}

static void read_host(struct station *s, int from)
{
	struct packet p;

	for (int i = 0; i < READ_AT_ONCE; i++) {
		const ssize_t n = read(s->tuns[from], p.data, PACKET_BYTES);

		if (n <= 0)
			return;
		p.bytes = (size_t)n;
		take(s, from, &p, ferry_now_ns());
	}
}

/* What is due leaves; when the next one is. */
static uint64_t deliver(struct station *s)
{
	while (s->n_queued) {
		struct packet *p = s->queue[0];

		if (p->due_ns > ferry_now_ns())
			return p->due_ns;
		if (write(s->tuns[p->to], p->data, p->bytes) > 0)
			add_seq_u64(&s->link->n_passed, 1);
		else
			add_seq_u64(&s->link->n_lost, 1);
		swap(&s->queue[0], &s->queue[--s->n_queued]);
		sink(s, 0);
	}
	return UINT64_MAX;
}

_Noreturn static void serve(struct station *s)
{
	struct pollfd polls[ROUGH_HOSTS];

	for (int h = 0; h < s->n_hosts; h++)
		polls[h] = (struct pollfd){s->tuns[h], POLLIN, 0};
	for (;;) {
		const uint64_t next_ns = deliver(s);
		const uint64_t now_ns = ferry_now_ns();
		const struct timespec left =
			ferry_timespec(next_ns > now_ns ? next_ns - now_ns : 0);

		ppoll(polls, (nfds_t)s->n_hosts,
		      next_ns == UINT64_MAX ? NULL : &left, NULL);
		for (int h = 0; h < s->n_hosts; h++)
			read_host(s, h);
	}
}

pid_t rough_link_start(struct rough_link *link, const int *tuns, int n_hosts)
{
	struct station *s;
	const pid_t parent = getpid();
	const pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_TIMERSLACK, 1000);
	s = calloc(1, sizeof(*s));
	if (!s || getppid() != parent)
		_exit(1);
	s->link = link;
	s->n_hosts = n_hosts;
	s->rng = link->seed;
	memcpy(s->tuns, tuns, (size_t)n_hosts * sizeof(*tuns));
	for (int i = 0; i < QUEUE; i++)
		s->queue[i] = &s->packets[i];
	serve(s);
}

void rough_link_cut(struct rough_link *link, uint32_t some)
{
	for (int h = 0; h < ROUGH_HOSTS; h++)
		store_release_u32(&link->cut[h], some >> h & 1 ? ~some : some);
}

void rough_link_mend(struct rough_link *link)
{
	for (int h = 0; h < ROUGH_HOSTS; h++)
		store_release_u32(&link->cut[h], 0);
}
