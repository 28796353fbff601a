/* SPDX-License-Identifier: Apache-2.0 */
/* What listens in a network namespace, as the kernel lists it. */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "namespaces.h"

enum { TCP_LISTENS = 0x0A, UDP_BOUND = 0x07 };

/* Numbers of /proc/net are words of the machine's byte order. */
static void address_text(const char *hex, char text[INET6_ADDRSTRLEN])
{
	const int n_words = (int)strlen(hex) / 8;
	uint32_t words[4] = {0};

	for (int i = 0; i < n_words && i < 4; i++)
		sscanf(hex + (size_t)i * 8, "%8x", &words[i]);
	inet_ntop(n_words == 1 ? AF_INET : AF_INET6, words, text,
	          INET6_ADDRSTRLEN);
}

static void append(char *text, size_t bytes, const char *kind, const char *line)
{
	char hex[33];
	char from[INET6_ADDRSTRLEN];
	unsigned port;
	unsigned state;
	const size_t n = strlen(text);

	if (sscanf(line, " %*d: %32[0-9A-F]:%4x %*32[0-9A-F]:%*4x %2x", hex,
	           &port, &state) != 3)
		return;
	if (state != (kind[0] == 't' ? TCP_LISTENS : UDP_BOUND))
		return;
	address_text(hex, from);
	snprintf(text + n, bytes - n,
	         strchr(from, ':') ? "%s [%s]:%u\n" : "%s %s:%u\n", kind, from,
	         port);
}

bool namespaces_listeners(char *text, size_t bytes)
{
	static const char *const files[] = {"tcp", "tcp6", "udp", "udp6"};
	bool any = false;

	text[0] = 0;
	for (int i = 0; i < 4; i++) {
		char path[64];
		char line[512];
		FILE *f;

		snprintf(path, sizeof(path), "/proc/thread-self/net/%s",
		         files[i]);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f)) {
			any = true;
			append(text, bytes, files[i], line);
		}
		if (f)
			fclose(f);
	}
	return any;
}
