/* SPDX-License-Identifier: Apache-2.0 */
/* The fabrics of this room, one table each. */
#ifndef FERRY_REGISTRY_H
#define FERRY_REGISTRY_H

#include "fabric_ops.h"

extern const struct ferry_fabric_ops ferry_fabric_p2p;
extern const struct ferry_fabric_ops ferry_fabric_local;
extern const struct ferry_fabric_ops ferry_fabric_shm;
extern const struct ferry_fabric_ops ferry_fabric_wire;

#endif
