/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring between kernels and the proxy (net_proxy.cuh, net_proxy.c): records
 * of puts in pinned memory of the host, which the GPU maps. Many threads of a
 * GPU write, one thread of the host reads.
 *
 *	kernel                               proxy
 *	K1 t = ticket++ (memory of the GPU)  P1 load seal of record n, acquire,
 *	K2 until done + N > t, acquire          until it is n + 1
 *	K3 write record t % N                P2 take the record
 *	K4 seal = t + 1, release, system     P3 done = n + 1, release
 *
 * A record is written only when the proxy has taken the one that was there
 * (K2 pairs with P3), and taken only when it is whole (P1 with K4). K4 comes
 * after all that the thread knows to be written, so the bytes of `out` are
 * there when the proxy posts the put.
 */
#ifndef FERRY_NET_RING_H
#define FERRY_NET_RING_H

#include <stdint.h>

enum { FERRY_NET_RECORDS = 4096 };

/* 64 bytes, a put as in net_port.cuh; seal is written last. */
struct ferry_net_record {
	uint64_t to, from;
	uint32_t peer, bytes, counter, n_signals;
	uint64_t unused[3];
	uint64_t seal;
};

struct ferry_net_ring {
	uint64_t done; /* records that the proxy has taken */
	uint64_t pad[7];
	struct ferry_net_record records[FERRY_NET_RECORDS];
};

/* Memory of the GPU; behind it a struct ferry_net_seen for each counter. */
struct ferry_net_tickets {
	uint64_t next;
	uint64_t done; /* the ring's, as it was last seen */
};

/*
 * A counter of the host as somebody saw it last. Looks at one word of the host
 * queue up, 3 us each (one H200, 2026-12-01; dev/cuda-host.md): of those who
 * wait for it one looks there at a time, and the others here.
 */
struct ferry_net_seen {
	uint64_t value;
	uint32_t busy; /* 1: somebody looks */
	uint32_t pad;
};

#endif
