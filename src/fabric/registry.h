/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabrics of this room, one table each, and what those can do more that
 * others stand on.
 */
#ifndef FERRY_REGISTRY_H
#define FERRY_REGISTRY_H

#include "fabric_ops.h"

extern const struct ferry_fabric_ops ferry_fabric_p2p;
extern const struct ferry_fabric_ops ferry_fabric_nvshmem;
extern const struct ferry_fabric_ops ferry_fabric_p2p_wire;
extern const struct ferry_fabric_ops ferry_fabric_p2p_ofi;
extern const struct ferry_fabric_ops ferry_fabric_local;
extern const struct ferry_fabric_ops ferry_fabric_shm;
extern const struct ferry_fabric_ops ferry_fabric_ofi;
extern const struct ferry_fabric_ops ferry_fabric_shm_ofi;
extern const struct ferry_fabric_ops ferry_fabric_wire;
extern const struct ferry_fabric_ops ferry_fabric_shm_wire;

/* Which peers shm maps; it watches those of the own host in every case. */
enum ferry_reach {
	FERRY_REACH_SELF,    /* none */
	FERRY_REACH_HOST,    /* those of the own host */
	FERRY_REACH_MACHINE, /* all on this machine, other hosts too */
};

/*
 * Opens shm as the memory of another fabric, in worlds of several hosts too. A
 * peer that it does not map has no control, no data, no capabilities, and its
 * death is told by boot.
 */
enum ferry_status ferry_fabric_shm_open(struct ferry_world *world,
                                        enum ferry_reach reach,
                                        struct ferry_fabric **fabric);

#endif
