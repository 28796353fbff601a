/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor: one poll loop over a signalfd and, with tags, the output
 * pipes of the ranks. Starting a rank is in job_start.c.
 */
#include "job.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "job_start.h"
#include "opt.h"

/* From SIGTERM to SIGKILL. */
enum { KILL_AFTER_MS = 2000 };

static void signal_all(const struct job *job, int signal_number)
{
	for (int32_t r = 0; r < job->n_started; r++)
		if (job->ranks[r].pid > 0)
			kill(job->own_groups ? -job->ranks[r].pid
			                     : job->ranks[r].pid,
			     signal_number);
}

static void report(const struct job *job, int32_t rank, int status)
{
	if (WIFSIGNALED(status))
		fprintf(stderr, "%s: rank %d was killed by signal %d (%s)\n",
		        job->config->name, rank, WTERMSIG(status),
		        strsignal(WTERMSIG(status)));
	else
		fprintf(stderr, "%s: rank %d exited with status %d\n",
		        job->config->name, rank, WEXITSTATUS(status));
}

static void rank_ended(struct job *job, int32_t rank, int status)
{
	job->ranks[rank].pid = 0;
	job->n_running--;
	if (status == 0 || job->exit_status != 0)
		return;
	job->exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status)
	                                       : WEXITSTATUS(status);
	report(job, rank, status);
	job->next_signal = SIGTERM;
	job->next_ns = ferry_deadline_ns(job->config->grace_ms);
}

static void reap(struct job *job)
{
	for (int32_t r = 0; r < job->n_started; r++) {
		int status;

		if (job->ranks[r].pid > 0 &&
		    waitpid(job->ranks[r].pid, &status, WNOHANG) > 0)
			rank_ended(job, r, status);
	}
}

/* A signal came for this process: the ranks get it too. */
static void pass_on(struct job *job, const struct signalfd_siginfo *info)
{
	const int number = (int)info->ssi_signo;
	const bool ends = number != SIGUSR1 && number != SIGUSR2;

	if (ends && job->ended_by_user) {
		signal_all(job, SIGKILL); /* asked twice */
		return;
	}
	job->ended_by_user |= ends;
	/* The terminal has told its whole foreground group already. */
	if (info->ssi_code != SI_KERNEL || job->own_groups)
		signal_all(job, number);
}

static void take_signals(struct job *job)
{
	struct signalfd_siginfo info;

	while (read(job->signal_fd, &info, sizeof(info)) == sizeof(info))
		if (info.ssi_signo != SIGCHLD)
			pass_on(job, &info);
	reap(job);
}

/* After a failure: SIGTERM when the grace is over, then SIGKILL. */
static void escalate(struct job *job)
{
	if (!job->next_signal || ferry_now_ns() < job->next_ns)
		return;
	if (job->next_signal == SIGTERM)
		fprintf(stderr, "%s: ending %d other rank%s\n",
		        job->config->name, job->n_running,
		        job->n_running == 1 ? "" : "s");
	signal_all(job, job->next_signal);
	job->next_signal = job->next_signal == SIGTERM ? SIGKILL : 0;
	job->next_ns = ferry_deadline_ns(KILL_AFTER_MS);
}

static int poll_ms(const struct job *job)
{
	const uint64_t now = ferry_now_ns();

	if (!job->next_signal)
		return -1;
	if (job->next_ns <= now)
		return 0;
	return (int)((job->next_ns - now) / 1000000 + 1);
}

static void move_output(struct job *job, const struct pollfd *fds)
{
	for (int32_t i = 0; i < 2 * job->n_started; i++)
		if (fds[1 + i].revents && !relay_move(&job->relays[i])) {
			fprintf(stderr, "%s: cannot pass output on: %s\n",
			        job->config->name, strerror(errno));
			relay_finish(&job->relays[i]);
		}
}

static void supervise(struct job *job, struct pollfd *fds)
{
	const int32_t n_relays = job->relays ? 2 * job->n_started : 0;

	fds[0] = (struct pollfd){job->signal_fd, POLLIN, 0};
	while (job->n_running > 0) {
		for (int32_t i = 0; i < n_relays; i++)
			fds[1 + i] =
				(struct pollfd){job->relays[i].from, POLLIN, 0};
		if (poll(fds, 1 + (nfds_t)n_relays, poll_ms(job)) < 0)
			continue;
		if (n_relays)
			move_output(job, fds);
		if (fds[0].revents)
			take_signals(job);
		escalate(job);
	}
	/* What the ranks wrote last; a grandchild may hold the pipes open. */
	for (int32_t i = 0; i < n_relays; i++)
		relay_drain(&job->relays[i]);
}

int job_run(const struct job_config *config)
{
	struct job job;
	struct pollfd *fds =
		calloc(1 + 2 * (size_t)config->n_ranks, sizeof(*fds));

	if (!fds || !job_init(&job, config)) {
		fprintf(stderr, "%s: %s\n", config->name, strerror(errno));
		free(fds);
		return EXIT_FAILED;
	}
	if (!job_start(&job)) {
		fprintf(stderr, "%s: cannot start rank %d: %s\n", config->name,
		        job.n_started, strerror(errno));
		signal_all(&job, SIGKILL);
		job.exit_status = EXIT_FAILED;
	}
	supervise(&job, fds);
	job_destroy(&job);
	free(fds);
	return job.exit_status;
}
