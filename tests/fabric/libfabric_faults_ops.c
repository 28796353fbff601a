/* SPDX-License-Identifier: Apache-2.0 */
/* Writes, completions and arrivals: refused, failed, held back and mixed up. */
#include "libfabric_faults_inner.h"

enum { BATCH = 32 };

static uint64_t up_to_us(struct faulty *f, uint32_t us)
{
	return rng_next(&f->rng) % ((uint64_t)us * 1000 + 1);
}

static void add_error(struct faulty *f, void *context, int error)
{
	if (f->n_errors < FAULTS_ERRORS)
		f->errors[f->n_errors++] = (struct fi_cq_err_entry){
			.op_context = context,
			.flags = FI_RMA | FI_WRITE,
			.err = error,
		};
}

static void hold(struct faulty *f, const struct fi_msg_rma *message,
                 uint64_t flags, uint32_t us)
{
	struct held *h = &f->held[f->n_held++];

	h->message = *message;
	h->from = message->msg_iov[0];
	h->key = message->desc[0];
	memcpy(h->to, message->rma_iov,
	       message->rma_iov_count * sizeof(h->to[0]));
	h->message.msg_iov = &h->from;
	h->message.desc = &h->key;
	h->message.rma_iov = h->to;
	h->flags = flags;
	h->due_ns = ferry_now_ns() + up_to_us(f, us);
	add_seq_u32(&faults_board->done.held, 1);
}

/* The pointers of a record that has moved. */
static void settle(struct held *h)
{
	h->message.msg_iov = &h->from;
	h->message.desc = &h->key;
	h->message.rma_iov = h->to;
}

/* Lets go of what has been held long enough. */
static void release(struct faulty *f)
{
	const uint64_t now = f->n_held ? ferry_now_ns() : 0;

	for (uint32_t i = 0; i < f->n_held;) {
		struct held *h = &f->held[i];
		ssize_t err = -FI_EAGAIN;

		if (h->due_ns <= now)
			err = f->real_rma->writemsg(f->ep, &h->message,
			                            h->flags);
		if (err == -FI_EAGAIN && faults_gone(f, h->message.addr))
			err = -FI_ECONNREFUSED;
		if (err == -FI_EAGAIN) {
			i++;
			continue;
		}
		if (err)
			add_error(f, h->message.context, (int)-err);
		*h = f->held[--f->n_held];
		settle(h);
	}
}

static bool takes_nothing(struct faulty *f)
{
	const struct ofi_faults *set = &faults_board->set;
	const uint64_t now = ferry_now_ns();
	bool again;

	if (set->again_ms && !f->again_ns)
		f->again_ns = now + (uint64_t)set->again_ms * 1000000;
	f->n_tried++;
	again = f->remakes || now < f->again_ns ||
	        (set->again_every && f->n_tried % set->again_every == 0);
	f->remakes = false;
	if (again)
		add_seq_u32(&faults_board->done.again, 1);
	return again;
}

/* A write that a socket has taken, and that went with its connection. */
static void lose(struct faulty *f, const struct fi_msg_rma *message,
                 uint64_t flags)
{
	add_seq_u32(&faults_board->done.lost, 1);
	if (flags & FI_DELIVERY_COMPLETE)
		add_error(f, message->context, FI_ECANCELED);
	else
		f->late[f->n_late++].entry = (struct fi_cq_data_entry){
			.op_context = message->context,
			.flags = FI_RMA | FI_WRITE,
		};
}

/* Passes a write on, or loses it, or does so twice. */
static ssize_t pass(struct faulty *f, const struct fi_msg_rma *message,
                    uint64_t flags)
{
	const struct ofi_faults *set = &faults_board->set;
	/* One that is asked to arrive is no put. */
	const bool immediate =
		flags & FI_REMOTE_CQ_DATA && !(flags & FI_DELIVERY_COMPLETE);
	const bool bytes = !immediate && message->msg_iov[0].iov_len;
	const uint32_t n_immediates = f->n_immediates + immediate;
	const uint32_t n_bytes = f->n_bytes + bytes;
	ssize_t err = 0;

	if ((immediate && n_immediates == set->lose_immediate) ||
	    (bytes && n_bytes == set->lose_bytes))
		lose(f, message, flags);
	else
		err = f->real_rma->writemsg(f->ep, message, flags);
	if (err)
		return err;
	f->remakes = bytes && n_bytes == set->lose_bytes &&
	             n_immediates + 1 != set->lose_immediate;
	f->n_immediates = n_immediates;
	f->n_bytes = n_bytes;
	if (!immediate || n_immediates != set->double_immediate)
		return 0;
	/* Without a completion, and without its bytes. */
	if (!f->real_rma->injectdata(f->ep, message->msg_iov[0].iov_base, 0,
	                             message->data, message->addr,
	                             message->rma_iov[0].addr,
	                             message->rma_iov[0].key))
		add_seq_u32(&faults_board->done.lost, 1);
	return 0;
}

static bool is_hmem(const struct faulty *f, const struct iovec *from)
{
	const uintptr_t at = (uintptr_t)from->iov_base;
	const uintptr_t first = (uintptr_t)f->hmem.iov_base;

	return from->iov_len && at >= first && at - first < f->hmem.iov_len;
}

static ssize_t writemsg(struct fid_ep *ep, const struct fi_msg_rma *message,
                        uint64_t flags)
{
	struct faulty *f = FAULTY_OF(ep->rma, rma);
	const struct ofi_faults *set = &faults_board->set;
	ssize_t err = 0;

	release(f);
	if (!faults_chosen(f->rank))
		return f->real_rma->writemsg(ep, message, flags);
	if (takes_nothing(f) || (set->hold_us && f->n_held == FAULTS_HELD))
		return -FI_EAGAIN;
	if (set->deny_write && f->n_writes + 1 == set->deny_write) {
		err = -FI_EINVAL;
		f->n_writes++;
		add_seq_u32(&faults_board->done.errors, 1);
	} else if (set->fail_write && f->n_writes + 1 == set->fail_write) {
		add_error(f, message->context, FI_EIO);
		add_seq_u32(&faults_board->done.errors, 1);
	} else if (set->hold_us) {
		hold(f, message, flags, set->hold_us);
	} else {
		err = pass(f, message, flags);
	}
	if (!err) {
		f->n_writes++;
		add_seq_u32(&faults_board->done.writes, 1);
		add_seq_u32(&faults_board->done.hmem_writes,
		            is_hmem(f, &message->msg_iov[0]));
	}
	return err;
}

void faults_take_ep(struct faulty *f, struct fid_ep *ep)
{
	f->ep = ep;
	FAULTY_TAKE(ep->rma, f, rma);
	f->rma.writemsg = writemsg;
}

static bool is_arrival(const struct fi_cq_data_entry *e)
{
	return e->flags & FI_REMOTE_CQ_DATA && !e->op_context;
}

/* Keeps what was read, until it is due. */
static void keep(struct faulty *f, const struct fi_cq_data_entry *e)
{
	const struct ofi_faults *set = &faults_board->set;
	struct late *l = &f->late[f->n_late];

	if (is_arrival(e) && ++f->n_arrivals == set->overrun) {
		add_error(f, NULL, FI_EOVERRUN);
		add_seq_u32(&faults_board->done.overruns, 1);
		return;
	}
	if (!f->n_late)
		f->n_behind = set->behind;
	l->entry = *e;
	l->due_ns = ferry_now_ns() + up_to_us(f, set->late_us);
	if (is_arrival(e)) {
		if (l->due_ns < f->last_due_ns)
			l->due_ns = f->last_due_ns;
		f->last_due_ns = l->due_ns;
	}
	add_seq_u32(&faults_board->done.late, set->late_us || set->behind);
	f->n_late++;
}

/* Moves what is due to `out`; how many. Arrivals keep their order. */
static size_t give(struct faulty *f, struct fi_cq_data_entry *out, size_t count)
{
	const uint64_t now = ferry_now_ns();
	uint32_t left = 0;
	size_t n = 0;

	if (f->n_behind) {
		f->n_behind--;
		return 0;
	}
	for (uint32_t i = 0; i < f->n_late; i++) {
		if (n < count && f->late[i].due_ns <= now)
			out[n++] = f->late[i].entry;
		else
			f->late[left++] = f->late[i];
	}
	f->n_late = left;
	return n;
}

static ssize_t read_cq(struct fid_cq *cq, void *buf, size_t count)
{
	struct faulty *f = FAULTY_OF(cq->ops, cq);
	const struct ofi_faults *set = &faults_board->set;
	struct fi_cq_data_entry batch[BATCH];
	ssize_t n = -FI_EAGAIN;

	release(f);
	if (f->n_errors)
		return -FI_EAVAIL;
	if (!faults_chosen(f->rank) ||
	    (!set->late_us && !set->behind && !set->overrun && !f->n_late))
		return f->real_cq->read(cq, buf, count);
	if (f->n_late + BATCH <= FAULTS_LATE)
		n = f->real_cq->read(cq, batch, BATCH);
	for (ssize_t i = 0; i < n; i++)
		keep(f, &batch[i]);
	const size_t given = give(f, buf, count);

	if (given)
		return (ssize_t)given;
	return n < 0 && !f->n_late ? n : -FI_EAGAIN;
}

static ssize_t readerr(struct fid_cq *cq, struct fi_cq_err_entry *entry,
                       uint64_t flags)
{
	struct faulty *f = FAULTY_OF(cq->ops, cq);

	if (!f->n_errors)
		return f->real_cq->readerr(cq, entry, flags);
	*entry = f->errors[0];
	memmove(&f->errors[0], &f->errors[1],
	        --f->n_errors * sizeof(f->errors[0]));
	return 1;
}

void faults_take_cq(struct faulty *f, struct fid_cq *cq)
{
	FAULTY_TAKE(cq->ops, f, cq);
	f->cq.read = read_cq;
	f->cq.readerr = readerr;
}

bool faults_busy(const struct fid_cq *cq)
{
	const struct faulty *f = FAULTY_OF(cq->ops, cq);

	return f->n_held || f->n_late || f->n_errors ||
	       faults_board->set.restless;
}
