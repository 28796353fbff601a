/* SPDX-License-Identifier: Apache-2.0 */
/* Network namespaces for tests, and what connects them. */
#include "namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plumbing.h"

static const char bridge[] = "bridge";
static const char device[] = "net0";

/* What the thread that makes them is asked, and answers. */
struct order {
	struct namespaces *ns;
	bool rough;
	int tuns[NAMESPACES_MAX];
	int err; /* of the first step that failed */
	const char *step;
};

void namespaces_address(int host, char text[16])
{
	snprintf(text, 16, "10.77.0.%u", (unsigned)(host + 1) & 255);
}

static void port_name(int host, char name[16])
{
	snprintf(name, 16, "port%u", (unsigned)host & 255);
}

static bool step(struct order *o, const char *what, bool good)
{
	if (!good && !o->step) {
		o->err = errno;
		o->step = what;
	}
	return good;
}

/* A new namespace, which this thread is in afterwards. */
static int fresh(struct order *o)
{
	if (!step(o, "a network namespace", !unshare(CLONE_NEWNET)))
		return -1;
	const int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

	step(o, "/proc/thread-self/ns/net", fd >= 0);
	step(o, "the loopback device", plumb_up("lo", true));
	return fd;
}

/*
 * Lost segments are sent again after 200 ms or more, which is many times the
 * flight here and would be most of a test. Kernels before 6.11 cannot.
 */
static void send_again_soon(void)
{
	const int fd =
		open("/proc/sys/net/ipv4/tcp_rto_min_us", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, "10000", 5) != 5)
		perror("tcp_rto_min_us");
	close(fd);
}

static void connect_host(struct order *o, int host)
{
	char address[16];
	char port[16];

	port_name(host, port);
	namespaces_address(host, address);
	if (!o->rough) {
		setns(o->ns->hub, CLONE_NEWNET);
		step(o, "a veth pair",
		     plumb_veth(port, device, o->ns->fds[host]));
		step(o, "a port of the bridge", plumb_join(bridge, port));
		step(o, "a port of the bridge", plumb_up(port, true));
	}
	setns(o->ns->fds[host], CLONE_NEWNET);
	if (o->rough) {
		o->tuns[host] = plumb_tun(device);
		step(o, "a TUN device, /dev/net/tun", o->tuns[host] >= 0);
		send_again_soon();
	}
	step(o, "an address", plumb_address(device, address));
	step(o, "a device", plumb_up(device, true));
}

static void *make(void *arg)
{
	struct order *o = arg;
	struct namespaces *ns = o->ns;

	if (!o->rough) {
		ns->hub = fresh(o);
		if (ns->hub < 0)
			return NULL;
		step(o, "a bridge", plumb_bridge(bridge));
		step(o, "a bridge", plumb_up(bridge, true));
	}
	for (int h = 0; h < ns->n_hosts && !o->step; h++)
		ns->fds[h] = fresh(o);
	for (int h = 0; h < ns->n_hosts && !o->step; h++)
		connect_host(o, h);
	for (int h = 0; h < ns->n_hosts && !o->step; h++) {
		setns(ns->fds[h], CLONE_NEWNET);
		step(o, "a device at work", plumb_wait(device));
	}
	return NULL;
}

/* In a thread: the namespace of the caller stays what it is. */
static bool make_apart(struct order *o)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, make, o))
		abort();
	pthread_join(thread, NULL);
	return !o->step;
}

static bool write_file(const char *path, const char *text)
{
	const int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	const bool good =
		write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	close(fd);
	return good;
}

/* A namespace of users, where this user, by the same number, may do it all. */
static bool rule_oneself(void)
{
	const unsigned uid = geteuid();
	const unsigned gid = getegid();
	char map[64];

	if (unshare(CLONE_NEWUSER))
		return false;
	snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	if (!write_file("/proc/self/uid_map", map))
		return false;
	snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	return write_file("/proc/self/setgroups", "deny") &&
	       write_file("/proc/self/gid_map", map);
}

static void empty(struct namespaces *ns, int n_hosts)
{
	*ns = (struct namespaces){.n_hosts = n_hosts, .hub = -1};
	for (int h = 0; h < NAMESPACES_MAX; h++)
		ns->fds[h] = -1;
}

static struct rough_link *share(const struct rough_link *rough)
{
	struct rough_link *own =
		mmap(NULL, sizeof(*own), PROT_READ | PROT_WRITE,
	             MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (own == MAP_FAILED)
		abort();
	*own = *rough;
	return own;
}

static bool start_rough(struct order *o, const struct rough_link *rough)
{
	struct namespaces *ns = o->ns;

	ns->rough = share(rough);
	ns->rough_pid = rough_link_start(ns->rough, o->tuns, ns->n_hosts);
	for (int h = 0; h < ns->n_hosts; h++)
		close(o->tuns[h]);
	return ns->rough_pid > 0;
}

bool namespaces_make(struct namespaces *ns, int n_hosts,
                     const struct rough_link *rough,
                     char reason[NAMESPACES_TEXT])
{
	struct order o = {.ns = ns, .rough = rough != NULL};

	if (n_hosts < 1 || n_hosts > NAMESPACES_MAX)
		abort();
	empty(ns, n_hosts);
	bool good = make_apart(&o);
	if (!good && o.err == EPERM && rule_oneself()) {
		o = (struct order){.ns = ns, .rough = rough != NULL};
		good = make_apart(&o);
	}
	if (!good)
		snprintf(reason, NAMESPACES_TEXT, "%s: %s", o.step,
		         strerror(o.err));
	else if (rough)
		good = start_rough(&o, rough);
	if (!good)
		namespaces_end(ns);
	return good;
}

void namespaces_need(struct namespaces *ns, int n_hosts,
                     const struct rough_link *rough)
{
	char reason[NAMESPACES_TEXT];

	if (namespaces_make(ns, n_hosts, rough, reason))
		return;
	printf("skipped: no hosts of network namespaces here: %s\n", reason);
	exit(77);
}

void namespaces_end(struct namespaces *ns)
{
	if (ns->rough_pid > 0) {
		kill(ns->rough_pid, SIGKILL);
		waitpid(ns->rough_pid, NULL, 0);
	}
	if (ns->rough)
		munmap(ns->rough, sizeof(*ns->rough));
	for (int h = 0; h < ns->n_hosts; h++)
		if (ns->fds[h] >= 0)
			close(ns->fds[h]);
	if (ns->hub >= 0)
		close(ns->hub);
	empty(ns, 0);
}

bool namespaces_enter(const struct namespaces *ns, int host)
{
	return !setns(ns->fds[host], CLONE_NEWNET);
}

/* Asked of a thread, which alone goes to the hub. */
struct cable {
	const struct namespaces *ns;
	int host;
	bool in;
	bool good;
};

static void *move_cable(void *arg)
{
	struct cable *c = arg;
	char port[16];

	port_name(c->host, port);
	c->good = !setns(c->ns->hub, CLONE_NEWNET) && plumb_up(port, c->in);
	return NULL;
}

bool namespaces_cable(const struct namespaces *ns, int host, bool in)
{
	struct cable c = {ns, host, in, false};
	pthread_t thread;

	if (pthread_create(&thread, NULL, move_cable, &c))
		abort();
	pthread_join(thread, NULL);
	return c.good;
}
