// SPDX-License-Identifier: GPL-2.0
/* See fuzzer.h. */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "coverage.h"
#include "endpoint.h"
#include "fuzzer.h"

#define SECONDS 30

void fuzzer_prepare(struct fuzzer *fuzzer)
{
	fuzzer->seed = time(NULL);
	fuzzer->seconds = SECONDS;
	fuzzer->coverage = NULL;
}

bool fuzzer_option(struct fuzzer *fuzzer, int option, const char *argument)
{
	switch (option) {
	case 's':
		fuzzer->seed = strtoull(argument, NULL, 0);
		return true;
	case 't':
		fuzzer->seconds = atoi(argument);
		return true;
	case 'c':
		fuzzer->coverage = argument;
		coverage_want();
		return true;
	default:
		return false;
	}
}

void fuzzer_start(struct fuzzer *fuzzer, int argc, char *const *argv, int operands, const char *needed)
{
	int option;

	fuzzer_prepare(fuzzer);
	while ((option = getopt(argc, argv, FUZZER_OPTIONS)) != -1) {
		if (!fuzzer_option(fuzzer, option, optarg))
			exit(KSFT_FAIL);
	}
	if (argc - optind != operands)
		die("%s", needed);
}

bool fuzzer_goes_on(uint64_t end, bool enough)
{
	uint64_t now = now_ms();

	return now < end || (!enough && now < end + FUZZER_MORE_TIME_MS);
}

void *fuzzer_shared(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("no memory");
	return memory;
}

pid_t fuzzer_fork(void)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

bool fuzzer_wait(const struct fuzzer *fuzzer, pid_t pid, uint64_t last_ms)
{
	uint64_t end = now_ms() + fuzzer->seconds * 1000 + FUZZER_MORE_TIME_MS + last_ms;
	int status = 0;

	while (!waitpid(pid, &status, WNOHANG)) {
		if (now_ms() > end) {
			ksft_print_msg("it does not come to its end\n");
			kill(pid, SIGKILL);
			return false;
		}
		usleep(100000);
	}
	if (status)
		ksft_print_msg("it ends with wait status %#x\n", status);
	return !status;
}
