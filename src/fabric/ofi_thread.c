/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that gets a memory on when nobody else does. It sleeps on the
 * provider's descriptor and on a bell that callers ring for what could not be
 * handed over at once; where the provider has no descriptor it looks again
 * after naps that grow.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../core/bits.h"
#include "ofi_memory.h"

enum {
	SLACK_NS = 1000,
	NAP_LEAST_NS = 20000,
	NAP_WORK_NS = 2000000,  /* at most, with puts that wait */
	NAP_POLL_NS = 500000,   /* at most, without a descriptor */
	NAP_IDLE_NS = 10000000, /* with one, and nothing to do */
	LOOKS = 64, /* in a row, as long as nobody may sleep on it */
};

/* How long until a look is due without any event. */
static int64_t nap_ns(const struct ofi_mem *m, bool by_fd, int64_t last_ns)
{
	if (ofi_is_busy(m))
		return min_i64(last_ns * 2, NAP_WORK_NS);
	return by_fd ? NAP_IDLE_NS : min_i64(last_ns * 2, NAP_POLL_NS);
}

/* Sleeps until something happens; lets go of the lock meanwhile. */
static void rest(struct ofi_mem *m, bool by_fd, int64_t ns)
{
	struct pollfd fds[2] = {
		{.fd = m->bell_fd, .events = POLLIN},
		{.fd = m->cq_fd, .events = POLLIN},
	};
	const struct timespec timeout = ferry_timespec((uint64_t)ns);
	uint64_t rung;

	m->asleep = true;
	pthread_mutex_unlock(&m->lock);
	ppoll(fds, by_fd ? 2 : 1, &timeout, NULL);
	pthread_mutex_lock(&m->lock);
	m->asleep = false;
	if (fds[0].revents & POLLIN &&
	    read(m->bell_fd, &rung, sizeof(rung)) < 0)
		return; /* somebody else has read it */
}

/* Others may want the lock, or the core. */
static void give_way(struct ofi_mem *m)
{
	pthread_mutex_unlock(&m->lock);
	sched_yield();
	pthread_mutex_lock(&m->lock);
}

/*
 * A provider that lets nobody sleep on its descriptor has something that the
 * next look brings out, or one of the next (ferry_ofi_drain). It may also say
 * so for ever, while it waits for a peer: who only looked again would keep the
 * lock, and a core.
 */
static void work(void *arg)
{
	struct ofi_mem *m = arg;
	int64_t ns = NAP_LEAST_NS;
	int looks = 0;

	prctl(PR_SET_TIMERSLACK, SLACK_NS);
	pthread_mutex_lock(&m->lock);
	ferry_ofi_greet(m);
	while (!m->stop) {
		if (ferry_ofi_drive(m)) {
			/* Others may want the lock. */
			pthread_mutex_unlock(&m->lock);
			pthread_mutex_lock(&m->lock);
			ns = NAP_LEAST_NS;
			looks = 0;
			continue;
		}
		/* A queue that broke may have its descriptor ready for ever. */
		const bool by_fd = !m->broken[0] && ferry_ofi_may_sleep(m);

		if (m->cq_fd >= 0 && !by_fd && looks++ < LOOKS) {
			give_way(m);
			continue;
		}
		looks = 0;
		ferry_ofi_ask_last(m);
		ns = nap_ns(m, by_fd, ns);
		rest(m, by_fd, ns);
	}
	pthread_mutex_unlock(&m->lock);
}

/* A provider that grows a pool of buffers may register it with CUDA. */
static void *run(void *arg)
{
	ferry_gpu_within(ofi_gpu(arg), work, arg);
	return NULL;
}

enum ferry_status ferry_ofi_thread_open(struct ofi_mem *m)
{
	struct ferry_ctx *ctx = &ofi_world(m)->ctx;

	m->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (m->bell_fd < 0)
		return ferry_fail_errno(ctx, FERRY_SYS, errno, "ofi: eventfd");
	const int err = ferry_thread_start(&m->thread, run, m);

	m->has_thread = !err;
	return err ? ferry_fail_errno(ctx, FERRY_SYS, err, "ofi: a thread")
	           : FERRY_OK;
}

void ferry_ofi_thread_close(struct ofi_mem *m)
{
	if (m->has_thread) {
		pthread_mutex_lock(&m->lock);
		m->stop = true;
		ferry_ofi_ring(m);
		pthread_mutex_unlock(&m->lock);
		pthread_join(m->thread, NULL);
	}
	if (m->bell_fd >= 0)
		close(m->bell_fd);
}
