/* SPDX-License-Identifier: Apache-2.0 */
/* Objects: opening, registering and closing them, and counting what is open. */
#include <stdlib.h>

#include "libfabric_faults_inner.h"

/* A fabric's own record. */
struct faulty_fabric {
	struct fi_ops_fabric ops, *real;
	struct fi_ops fid, *real_fid;
};

static struct faulty *of_domain(struct fid_domain *domain)
{
	return FAULTY_OF(domain->ops, domain);
}

static bool is_name(const struct faults_name *a, const struct faults_name *b)
{
	return !memcmp(a, b, sizeof(*a));
}

bool faults_gone(const struct faulty *f, fi_addr_t peer)
{
	for (int i = 0; peer < FAULTS_PEERS && i < FAULTS_GONE; i++)
		if (is_name(&faults_board->gone[i], &f->peers[peer]))
			return true;
	return false;
}

static void opened(void)
{
	add_seq_u32(&faults_board->done.n_open, 1);
}

static int closed(int err)
{
	if (err)
		add_seq_u32(&faults_board->done.refused, 1);
	else
		sub_seq_u32(&faults_board->done.n_open, 1);
	return err;
}

static int close_mr(struct fid *fid)
{
	return closed(FAULTY_OF(fid->ops, mr_fid)->real_mr_fid->close(fid));
}

static int close_av(struct fid *fid)
{
	return closed(FAULTY_OF(fid->ops, av_fid)->real_av_fid->close(fid));
}

static int close_cq(struct fid *fid)
{
	return closed(FAULTY_OF(fid->ops, cq_fid)->real_cq_fid->close(fid));
}

static int close_ep(struct fid *fid)
{
	struct faulty *f = FAULTY_OF(fid->ops, ep_fid);
	const uint32_t i = add_seq_u32(&faults_board->n_gone, 1);

	faults_board->gone[i % FAULTS_GONE] = f->name;
	return closed(f->real_ep_fid->close(fid));
}

static int close_domain(struct fid *fid)
{
	struct faulty *f = FAULTY_OF(fid->ops, domain_fid);
	const int err = closed(f->real_domain_fid->close(fid));

	if (!err)
		free(f);
	return err;
}

static int close_fabric(struct fid *fid)
{
	struct faulty_fabric *f = (void *)((char *)fid->ops -
	                                   offsetof(struct faulty_fabric, fid));
	const int err = closed(f->real_fid->close(fid));

	if (!err)
		free(f);
	return err;
}

static int reg(struct fid *fid, const void *buf, size_t len, uint64_t access,
               uint64_t offset, uint64_t requested_key, uint64_t flags,
               struct fid_mr **mr, void *context)
{
	struct fid_domain *domain = (struct fid_domain *)(void *)fid;
	struct faulty *f = FAULTY_OF(domain->mr, mr);
	int err = faults_fail(f->rank, OFI_CALL_MR_REG);

	if (!err)
		err = f->real_mr->reg(fid, buf, len, access, offset,
		                      requested_key, flags, mr, context);
	if (err)
		return err;
	opened();
	/* All registrations of a domain have the same table. */
	FAULTY_TAKE((*mr)->fid.ops, f, mr_fid);
	f->mr_fid.close = close_mr;
	return 0;
}

/* Memory of a GPU: the real library takes it for that of the host. */
static int regattr(struct fid *fid, const struct fi_mr_attr *attr,
                   uint64_t flags, struct fid_mr **mr)
{
	struct fid_domain *domain = (struct fid_domain *)(void *)fid;
	struct faulty *f = FAULTY_OF(domain->mr, mr);
	struct fi_mr_attr own = *attr;
	int err = faults_fail(f->rank, OFI_CALL_MR_REGATTR);

	if (attr->iface != FI_HMEM_CUDA || attr->iov_count != 1 || flags)
		err = -FI_EINVAL;
	own.iface = FI_HMEM_SYSTEM;
	own.device.reserved = 0;
	if (!err)
		err = f->real_mr->regattr(fid, &own, flags, mr);
	if (err)
		return err;
	opened();
	FAULTY_TAKE((*mr)->fid.ops, f, mr_fid);
	f->mr_fid.close = close_mr;
	f->hmem = attr->mr_iov[0];
	add_seq_u32(&faults_board->done.n_hmem, 1);
	__atomic_fetch_or(&faults_board->done.hmem_devices,
	                  1u << attr->device.cuda, __ATOMIC_SEQ_CST);
	return 0;
}

static int setopt(fid_t fid, int level, int option, const void *value,
                  size_t bytes)
{
	struct fid_ep *ep = (struct fid_ep *)(void *)fid;
	struct faulty *f = FAULTY_OF(ep->ops, ep_ops);
	const int err = faults_fail(f->rank, OFI_CALL_SETOPT);

	if (err)
		return err;
	/* FI_OPT_CUDA_API_PERMITTED */
	if (!faults_board->set.hmem || level != FI_OPT_ENDPOINT || option != 10)
		return f->real_ep_ops->setopt(fid, level, option, value, bytes);
	if (bytes != sizeof(bool) || *(const bool *)value)
		return -FI_EINVAL;
	add_seq_u32(&faults_board->done.promised, 1);
	return 0;
}

static int insert(struct fid_av *av, const void *addr, size_t count,
                  fi_addr_t *fi_addr, uint64_t flags, void *context)
{
	struct faulty *f = FAULTY_OF(av->ops, av);
	const int err = faults_fail(f->rank, OFI_CALL_AV_INSERT);

	if (err)
		return err;
	const int n =
		f->real_av->insert(av, addr, count, fi_addr, flags, context);

	if (n == 1 && *fi_addr < FAULTS_PEERS)
		memcpy(f->peers[*fi_addr].bytes, addr, f->name_bytes);
	return n;
}

static int open_av(struct fid_domain *domain, struct fi_av_attr *attr,
                   struct fid_av **av, void *context)
{
	struct faulty *f = of_domain(domain);
	int err = faults_fail(f->rank, OFI_CALL_AV_OPEN);

	if (!err)
		err = f->real_domain->av_open(domain, attr, av, context);
	if (err)
		return err;
	opened();
	FAULTY_TAKE((*av)->ops, f, av);
	f->av.insert = insert;
	FAULTY_TAKE((*av)->fid.ops, f, av_fid);
	f->av_fid.close = close_av;
	return 0;
}

static int open_cq(struct fid_domain *domain, struct fi_cq_attr *attr,
                   struct fid_cq **cq, void *context)
{
	struct faulty *f = of_domain(domain);
	int err = faults_fail(f->rank, OFI_CALL_CQ_OPEN);

	if (!err)
		err = f->real_domain->cq_open(domain, attr, cq, context);
	if (err)
		return err;
	opened();
	faults_take_cq(f, *cq);
	FAULTY_TAKE((*cq)->fid.ops, f, cq_fid);
	f->cq_fid.close = close_cq;
	return 0;
}

static int bind_ep(struct fid *fid, struct fid *to, uint64_t flags)
{
	struct faulty *f = FAULTY_OF(fid->ops, ep_fid);
	const int err = faults_fail(f->rank, OFI_CALL_EP_BIND);

	return err ? err : f->real_ep_fid->bind(fid, to, flags);
}

static int control_ep(struct fid *fid, int command, void *arg)
{
	struct faulty *f = FAULTY_OF(fid->ops, ep_fid);
	const int err = command == FI_ENABLE
	                        ? faults_fail(f->rank, OFI_CALL_ENABLE)
	                        : 0;

	return err ? err : f->real_ep_fid->control(fid, command, arg);
}

static int getname_ep(fid_t fid, void *addr, size_t *addrlen)
{
	struct fid_ep *ep = (struct fid_ep *)(void *)fid;
	struct faulty *f = FAULTY_OF(ep->cm, cm);
	int err = faults_fail(f->rank, OFI_CALL_GETNAME);

	if (!err)
		err = f->real_cm->getname(fid, addr, addrlen);
	if (err || *addrlen > sizeof(f->name))
		return err;
	f->name_bytes = *addrlen;
	memcpy(f->name.bytes, addr, f->name_bytes);
	/* A number of a port is used again. */
	for (int i = 0; i < FAULTS_GONE; i++)
		if (is_name(&faults_board->gone[i], &f->name))
			memset(&faults_board->gone[i], 0, sizeof(f->name));
	return 0;
}

static int open_ep(struct fid_domain *domain, struct fi_info *info,
                   struct fid_ep **ep, void *context)
{
	struct faulty *f = of_domain(domain);
	int err = faults_fail(f->rank, OFI_CALL_ENDPOINT);
	struct fi_info *own = err ? NULL : faults_real_info(info);

	if (!err)
		err = own ? f->real_domain->endpoint(domain, own, ep, context)
		          : -FI_ENOMEM;
	if (own)
		faults_free_info(own);
	if (err)
		return err;
	opened();
	faults_take_ep(f, *ep);
	FAULTY_TAKE((*ep)->cm, f, cm);
	f->cm.getname = getname_ep;
	FAULTY_TAKE((*ep)->fid.ops, f, ep_fid);
	f->ep_fid.close = close_ep;
	f->ep_fid.bind = bind_ep;
	f->ep_fid.control = control_ep;
	FAULTY_TAKE((*ep)->ops, f, ep_ops);
	f->ep_ops.setopt = setopt;
	return 0;
}

static void take_domain(struct faulty *f, struct fid_domain *domain)
{
	const uint64_t seed = faults_board->set.seed;

	f->rank = faults_rank;
	f->rng = seed ^ (uint64_t)(uint32_t)f->rank << 32;
	FAULTY_TAKE(domain->ops, f, domain);
	f->domain.av_open = open_av;
	f->domain.cq_open = open_cq;
	f->domain.endpoint = open_ep;
	FAULTY_TAKE(domain->mr, f, mr);
	f->mr.reg = reg;
	f->mr.regattr = regattr;
	FAULTY_TAKE(domain->fid.ops, f, domain_fid);
	f->domain_fid.close = close_domain;
}

static int open_domain(struct fid_fabric *fabric, struct fi_info *info,
                       struct fid_domain **domain, void *context)
{
	struct faulty_fabric *ff = (void *)fabric->ops; /* its first member */
	struct faulty *f = calloc(1, sizeof(*f));
	struct fi_info *own = faults_real_info(info);
	int err = faults_fail(faults_rank, OFI_CALL_DOMAIN);

	if (!err)
		err = f && own ? ff->real->domain(fabric, own, domain, context)
		               : -FI_ENOMEM;
	if (own)
		faults_free_info(own);
	if (err) {
		free(f);
		return err;
	}
	opened();
	take_domain(f, *domain);
	return 0;
}

static int trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	struct faulty_fabric *ff = (void *)fabric->ops;

	for (int i = 0; i < count; i++)
		if (fids[i]->fclass == FI_CLASS_CQ &&
		    faults_busy((struct fid_cq *)(void *)fids[i]))
			return -FI_EAGAIN;
	return ff->real->trywait(fabric, fids, count);
}

int faults_take_fabric(struct fid_fabric *fabric)
{
	struct faulty_fabric *f = calloc(1, sizeof(*f));

	if (!f)
		return -FI_ENOMEM;
	opened();
	f->real = fabric->ops;
	f->real_fid = fabric->fid.ops;
	f->ops = *fabric->ops;
	f->fid = *fabric->fid.ops;
	f->ops.domain = open_domain;
	f->ops.trywait = trywait;
	f->fid.close = close_fabric;
	fabric->ops = &f->ops;
	fabric->fid.ops = &f->fid;
	return 0;
}
