/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of a job start: what a child does before it is itself. */
#include "job_start.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "opt.h"

/* 32 random hexadecimal digits behind a prefix. */
static bool random_name(char *text, size_t bytes, const char *prefix)
{
	unsigned long long words[2];

	if (getrandom(words, sizeof(words), 0) != sizeof(words))
		return false;
	snprintf(text, bytes, "%s%016llx%016llx", prefix, words[0], words[1]);
	return true;
}

static void signals_taken(sigset_t *set)
{
	static const int numbers[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
	                              SIGUSR1, SIGUSR2, SIGCHLD};

	sigemptyset(set);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		sigaddset(set, numbers[i]);
}

bool job_init(struct job *job, const struct job_config *config)
{
	const size_t n = (size_t)config->n_ranks;
	sigset_t taken;

	*job = (struct job){.config = config, .own_groups = !isatty(0)};
	if (!random_name(job->rendezvous, sizeof(job->rendezvous),
	                 "unix:ferry-") ||
	    !random_name(job->secret, sizeof(job->secret), ""))
		return false;
	job->ranks = calloc(n, sizeof(*job->ranks));
	if (config->tag)
		job->relays = calloc(2 * n, sizeof(*job->relays));
	signals_taken(&taken);
	sigprocmask(SIG_BLOCK, &taken, &job->old_mask);
	job->signal_fd = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
	return job->ranks && (!config->tag || job->relays) &&
	       job->signal_fd >= 0;
}

void job_destroy(struct job *job)
{
	close(job->signal_fd);
	free(job->ranks);
	free(job->relays);
	sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
}

static void set_environment(const struct job *job, int32_t rank)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", rank);
	setenv("FERRY_RANK", number, 1);
	snprintf(number, sizeof(number), "%d", job->config->n_ranks);
	setenv("FERRY_SIZE", number, 1);
	setenv("FERRY_RENDEZVOUS", job->rendezvous, 1);
	setenv("FERRY_SECRET", job->secret, 1);
}

/* Only rank 0 reads what is typed or piped in. */
static void close_stdin(void)
{
	const int null = open("/dev/null", O_RDONLY);

	if (null > 0) {
		dup2(null, 0);
		close(null);
	}
}

static int be_rank(const struct job *job, int32_t rank, pid_t parent,
                   int pipes[2][2])
{
	/* The parent may have gone before this call: then nobody signals. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		return EXIT_FAILED;
	if (job->own_groups)
		setpgid(0, 0);
	close(job->signal_fd);
	if (rank > 0)
		close_stdin();
	for (int i = 0; job->relays && i < 2; i++)
		dup2(pipes[i][1], i + 1);
	set_environment(job, rank);
	sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
	return job->config->child(job->config->arg, rank);
}

static bool open_pipes(int pipes[2][2])
{
	if (pipe2(pipes[0], O_CLOEXEC))
		return false;
	if (!pipe2(pipes[1], O_CLOEXEC))
		return true;
	close(pipes[0][0]);
	close(pipes[0][1]);
	return false;
}

static bool start_rank(struct job *job, int32_t rank)
{
	const pid_t parent = getpid();
	int pipes[2][2];

	if (job->relays && !open_pipes(pipes))
		return false;
	const pid_t pid = fork();

	if (pid == 0)
		exit(be_rank(job, rank, parent, pipes));
	for (int i = 0; job->relays && i < 2; i++) {
		close(pipes[i][1]);
		relay_init(&job->relays[2 * rank + i], pipes[i][0], i + 1,
		           rank);
	}
	if (pid < 0) /* the relays are closed with those of n_started */
		return false;
	if (job->own_groups)
		setpgid(pid, pid); /* whoever is first */
	job->ranks[rank].pid = pid;
	return true;
}

bool job_start(struct job *job)
{
	fflush(NULL); /* or every child prints it again */
	for (int32_t r = 0; r < job->config->n_ranks; r++) {
		if (!start_rank(job, r))
			return false;
		job->n_started++;
		job->n_running++;
	}
	return true;
}
