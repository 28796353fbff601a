/* SPDX-License-Identifier: Apache-2.0 */
/* Puts back the signal handlers that libfabric's providers install. */
#include <signal.h>
#include <stdlib.h>

#include "ofi_api.h"

struct ferry_ofi_signals {
	struct sigaction actions[NSIG];
	bool known[NSIG];
};

/* NULL when there is no memory: then nothing is put back. */
struct ferry_ofi_signals *ferry_ofi_signals_save(void)
{
	struct ferry_ofi_signals *saved = calloc(1, sizeof(*saved));

	for (int i = 1; saved && i < NSIG; i++)
		saved->known[i] = !sigaction(i, NULL, &saved->actions[i]);
	return saved;
}

void ferry_ofi_signals_restore(struct ferry_ofi_signals *saved)
{
	struct sigaction now;

	for (int i = 1; saved && i < NSIG; i++)
		if (saved->known[i] && !sigaction(i, NULL, &now) &&
		    now.sa_handler != saved->actions[i].sa_handler)
			sigaction(i, &saved->actions[i], NULL);
	free(saved);
}
