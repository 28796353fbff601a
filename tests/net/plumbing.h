/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Network devices of the namespace that this thread is in, by ioctl and one
 * message of netlink: no program is run and no file is left. All return false,
 * or -1, with errno.
 */
#ifndef PLUMBING_H
#define PLUMBING_H

#include <stdbool.h>

bool plumb_bridge(const char *name);
/* A pair: `here` in this namespace, `there` in the other one. */
bool plumb_veth(const char *here, const char *there, int other_ns);
bool plumb_join(const char *bridge, const char *port);
/* A TUN device; packets go in and out by the descriptor, not blocking. */
int plumb_tun(const char *name);

/* Of 24 bits of network. */
bool plumb_address(const char *name, const char *address);
bool plumb_up(const char *name, bool up);
/*
 * Waits until the kernel has noticed that the other end is there, too: up to a
 * second. Before that libfabric does not see the device.
 */
bool plumb_wait(const char *name);

#endif
