/* SPDX-License-Identifier: Apache-2.0 */
/* Passes the output of a rank on, whole lines only, each with a prefix. */
#include "relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

void relay_init(struct relay *relay, int from, int to, int rank)
{
	*relay = (struct relay){.from = from, .to = to};
	snprintf(relay->prefix, sizeof(relay->prefix), "[%d] ", rank);
	fcntl(from, F_SETFL, O_NONBLOCK);
}

static bool write_parts(int fd, struct iovec *parts, int n)
{
	while (n > 0) {
		ssize_t done = writev(fd, parts, n);

		if (done < 0 && errno == EAGAIN) {
			poll(&(struct pollfd){fd, POLLOUT, 0}, 1, -1);
			continue;
		}
		if (done < 0 && errno != EINTR)
			return false;
		for (; n > 0 && done >= (ssize_t)parts->iov_len; parts++, n--)
			done -= (ssize_t)parts->iov_len;
		if (n > 0 && done > 0) {
			parts->iov_base = (char *)parts->iov_base + done;
			parts->iov_len -= (size_t)done;
		}
	}
	return true;
}

/* One system call for a line, so that lines of other writers stay whole. */
static bool write_line(struct relay *relay, char *line, size_t bytes)
{
	char newline[] = "\n";
	struct iovec parts[] = {{relay->prefix, strlen(relay->prefix)},
	                        {line, bytes},
	                        {newline, 1}};

	return write_parts(relay->to, parts, 3);
}

/* Passes on the whole lines among what has come. */
static bool flush_lines(struct relay *relay, size_t searched)
{
	char *start = relay->line;
	char *const end = relay->line + relay->used;
	char *newline = memchr(start + searched, '\n', relay->used - searched);

	for (; newline; newline = memchr(start, '\n', (size_t)(end - start))) {
		if (!write_line(relay, start, (size_t)(newline - start)))
			return false;
		start = newline + 1;
	}
	relay->used = (size_t)(end - start);
	memmove(relay->line, start, relay->used);
	if (relay->used < RELAY_LINE_MAX)
		return true;
	const bool good = write_line(relay, relay->line, relay->used);

	relay->used = 0;
	return good;
}

static bool grow(struct relay *relay)
{
	if (relay->used < relay->size)
		return true;
	const size_t size = relay->size ? 2 * relay->size : 4096;
	char *line = realloc(relay->line, size);

	if (!line)
		return false;
	relay->line = line;
	relay->size = size;
	return true;
}

void relay_finish(struct relay *relay)
{
	if (relay->from < 0)
		return;
	if (relay->used)
		write_line(relay, relay->line, relay->used);
	close(relay->from);
	free(relay->line);
	relay->from = -1;
	relay->line = NULL;
}

/* Reads once; *n: how much came, 0 when there is no more for now. */
static bool move_once(struct relay *relay, size_t *n)
{
	*n = 0;
	if (!grow(relay))
		return false;
	const size_t searched = relay->used;
	const ssize_t got = read(relay->from, relay->line + searched,
	                         relay->size - searched);

	if (got < 0)
		return errno == EAGAIN || errno == EINTR;
	if (got == 0) {
		relay_finish(relay);
		return true;
	}
	*n = (size_t)got;
	relay->used += *n;
	return flush_lines(relay, searched);
}

bool relay_move(struct relay *relay)
{
	size_t n = 1;

	for (size_t moved = 0; n && moved < RELAY_TURN_BYTES; moved += n)
		if (relay->from < 0 || !move_once(relay, &n))
			return relay->from < 0;
	return true;
}

void relay_drain(struct relay *relay)
{
	int left = 0;
	size_t n = 1;

	if (relay->from < 0 || ioctl(relay->from, FIONREAD, &left))
		left = 0;
	for (; left > 0 && n && relay->from >= 0; left -= (int)n)
		if (!move_once(relay, &n))
			break;
	relay_finish(relay);
}
