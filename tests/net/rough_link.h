/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bad network between namespaces: each has a TUN device, and a process of
 * its own passes packets on, late, in another order, twice, or not at all. The
 * kernel's netem would do, but many kernels are built without it.
 */
#ifndef ROUGH_LINK_H
#define ROUGH_LINK_H

#include <stdint.h>
#include <sys/types.h>

enum { ROUGH_HOSTS = 8 };

/* In memory shared with the process; may be changed while packets travel. */
struct rough_link {
	uint64_t seed; /* before the start only */
	uint32_t delay_us;
	uint32_t jitter_us; /* up to this much more: packets overtake others */
	uint32_t loss_ppm;
	uint32_t twice_ppm;
	uint32_t kib_per_s;        /* of what a host sends; 0: no limit */
	uint32_t cut[ROUGH_HOSTS]; /* bit t of entry f: nothing from f to t */
	/* What has been done so far. */
	uint64_t n_passed;
	uint64_t n_lost;
	uint64_t n_twice;
	uint64_t n_overtook;
	uint64_t n_cut;
};

/*
 * Starts the process between the TUN devices, that of host h having address
 * h + 1 in the last byte. It ends with its parent.
 */
pid_t rough_link_start(struct rough_link *link, const int *tuns, int n_hosts);

/* No packet between the hosts of `some` (bits) and the others, or again. */
void rough_link_cut(struct rough_link *link, uint32_t some);
void rough_link_mend(struct rough_link *link);

#endif
