/* SPDX-License-Identifier: Apache-2.0 */
/* Network devices: veth, bridge, TUN, addresses. */
#include "plumbing.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static bool control(unsigned long request, void *arg)
{
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return false;
	const bool good = !ioctl(fd, request, arg);
	const int err = errno;

	close(fd);
	errno = err;
	return good;
}

static struct ifreq named(const char *name)
{
	struct ifreq r = {0};

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	return r;
}

bool plumb_bridge(const char *name)
{
	char copy[IFNAMSIZ];

	snprintf(copy, sizeof(copy), "%s", name);
	return control(SIOCBRADDBR, copy);
}

bool plumb_join(const char *bridge, const char *port)
{
	struct ifreq r = named(bridge);

	r.ifr_ifindex = (int)if_nametoindex(port);
	return r.ifr_ifindex && control(SIOCBRADDIF, &r);
}

bool plumb_up(const char *name, bool up)
{
	struct ifreq r = named(name);

	if (!control(SIOCGIFFLAGS, &r))
		return false;
	r.ifr_flags =
		(short)(up ? r.ifr_flags | IFF_UP : r.ifr_flags & ~IFF_UP);
	return control(SIOCSIFFLAGS, &r);
}

bool plumb_wait(const char *name)
{
	struct ifreq r = named(name);

	for (int i = 0; i < 3000; i++) {
		if (!control(SIOCGIFFLAGS, &r))
			return false;
		if (r.ifr_flags & IFF_RUNNING)
			return true;
		poll(NULL, 0, 1);
	}
	errno = ETIMEDOUT;
	return false;
}

static bool set_inet(unsigned long request, const char *name, const char *text)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	struct ifreq r = named(name);

	if (inet_pton(AF_INET, text, &a.sin_addr) != 1) {
		errno = EINVAL;
		return false;
	}
	memcpy(&r.ifr_addr, &a, sizeof(a));
	return control(request, &r);
}

bool plumb_address(const char *name, const char *address)
{
	return set_inet(SIOCSIFADDR, name, address) &&
	       set_inet(SIOCSIFNETMASK, name, "255.255.255.0");
}

int plumb_tun(const char *name)
{
	struct ifreq r = named(name);
	/* It belongs to the namespace that it is opened in. */
	const int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -1;
	r.ifr_flags = IFF_TUN | IFF_NO_PI;
	if (!ioctl(fd, TUNSETIFF, &r))
		return fd;
	const int err = errno;

	close(fd);
	errno = err;
	return -1;
}

/* A message of netlink in the making. */
struct request {
	struct nlmsghdr head;
	struct ifinfomsg link;
	char rest[256];
};

static struct rtattr *begin(struct request *r, unsigned short type,
                            const void *data, size_t bytes)
{
	struct rtattr *a =
		(struct rtattr *)(void *)((char *)r + r->head.nlmsg_len);

	a->rta_type = type;
	a->rta_len = (unsigned short)RTA_LENGTH(bytes);
	memcpy(RTA_DATA(a), data, bytes);
	r->head.nlmsg_len += (uint32_t)RTA_SPACE(bytes);
	return a;
}

/* What was added since is inside of it. */
static void end(const struct request *r, struct rtattr *a)
{
	const char *tail = (const char *)r + r->head.nlmsg_len;

	a->rta_len = (unsigned short)(tail - (const char *)a);
}

static void add_text(struct request *r, unsigned short type, const char *text)
{
	begin(r, type, text, strlen(text) + 1);
}

static bool ask(struct request *r)
{
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[512];
	} answer = {0};
	const int fd =
		socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return false;
	answer.error.error = -EPROTO;
	const bool good = send(fd, r, r->head.nlmsg_len, 0) > 0 &&
	                  recv(fd, &answer, sizeof(answer), 0) > 0;
	const int err = good ? -answer.error.error : errno;

	close(fd);
	errno = err;
	return !err;
}

bool plumb_veth(const char *here, const char *there, int other_ns)
{
	const struct ifinfomsg peer = {.ifi_family = AF_UNSPEC};
	struct request r = {
		.head = {.nlmsg_len = NLMSG_LENGTH(sizeof(r.link)),
	                 .nlmsg_type = RTM_NEWLINK,
	                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK |
	                                NLM_F_CREATE | NLM_F_EXCL},
	};

	add_text(&r, IFLA_IFNAME, here);
	struct rtattr *const info = begin(&r, IFLA_LINKINFO, "", 0);

	add_text(&r, IFLA_INFO_KIND, "veth");
	struct rtattr *const data = begin(&r, IFLA_INFO_DATA, "", 0);
	struct rtattr *const other =
		begin(&r, VETH_INFO_PEER, &peer, sizeof(peer));

	add_text(&r, IFLA_IFNAME, there);
	begin(&r, IFLA_NET_NS_FD, &other_ns, sizeof(other_ns));
	end(&r, other);
	end(&r, data);
	end(&r, info);
	return ask(&r);
}
