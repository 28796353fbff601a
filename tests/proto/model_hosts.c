/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hierarchy of the model: rank 0 is one host, ranks 1 and 2 are another. A
 * row of dispatch lands with one rank of a host, and the counters of all are
 * raised; parts of combine are added by whoever comes last.
 *
 * Of the host {1, 2} count[ROW][r][r] stands for what has landed with r's mate,
 * which no rank raises otherwise.
 */
#include "model_state.h"

static bool wants(const struct model *m, int plan, int from, int to)
{
	return fate(m, plan, from, to) != NO_ROW;
}

int landing(const struct model *m, int plan, int from, int to)
{
	const int first = first_of(to);

	if (wants(m, plan, from, first))
		return first;
	if (wants(m, plan, from, mate_of(first)))
		return mate_of(first);
	return -1;
}

int rows_at_mate(const struct model *m, int plan, int rank)
{
	return m->hosts && rank != 0 &&
	       landing(m, plan, 0, rank) == mate_of(rank);
}

int host_rows(const struct model *m, int plan, int rank)
{
	const int other = 1 - first_of(rank);

	return m->hosts && (fate(m, plan, rank, other) == ROW_KEPT ||
	                    fate(m, plan, rank, mate_of(other)) == ROW_KEPT);
}

void land(const struct model *m, struct state *n, int slot, int epoch, int to,
          int from)
{
	uint8_t *const put = &n->put[slot][epoch][ROW_PUT][to][from];
	int8_t(*const count)[RANKS] =
		n->count[slot][epoch % m->n_keys][ROW_PUT];

	if (to == 0 || (*put & STAGE_MASK) == FANNED) {
		if (!finished(m, n, slot, to))
			count[to][from]++;
		if (to == 0)
			n->row[slot][half_of(m, epoch)][to][from] =
				*put >> TAG_SHIFT;
		*put = NO_PUT;
		return;
	}
	n->row[slot][half_of(m, epoch)][to][from] = *put >> TAG_SHIFT;
	if (!finished(m, n, slot, mate_of(to)))
		count[mate_of(to)][mate_of(to)]++;
	*put = FANNED;
}

static void send_sum(struct at *at, struct state *n, const struct thread *t,
                     int to)
{
	const uint8_t tag = (uint8_t)(t->epoch + 1);
	const int plan = n->plan[t->slot][t->epoch];
	const int ranks[2] = {first_of(t->rank), mate_of(first_of(t->rank))};

	for (int i = 0; i < 2; i++)
		if (fate(at->m, plan, to, ranks[i]) == ROW_KEPT &&
		    n->part[t->slot][ranks[i]][to] != tag)
			at->wrong = "combine_send adds another part";
	n->arrived[t->slot][first_of(t->rank)][to] = 0;
	if (host_rows(at->m, plan, to))
		post(at, n, t, HOST_PUT, to);
}

void add_part(struct at *at, struct state *n, const struct thread *t, int to)
{
	const int plan = n->plan[t->slot][t->epoch];
	const int first = first_of(t->rank), mate = mate_of(first);
	const int all = wants(at->m, plan, to, first) +
	                (mate != first && wants(at->m, plan, to, mate));

	if (fate(at->m, plan, to, t->rank) == ROW_KEPT)
		n->part[t->slot][t->rank][to] = (uint8_t)(t->epoch + 1);
	if (++n->arrived[t->slot][first][to] == all ||
	    (at->m->without & WITHOUT_ARRIVAL))
		send_sum(at, n, t, to);
	post(at, n, t, BACK_PUT, to);
}
